"""Where episodes end and begin: automatic reset, time limit and episode statistics of one environment."""

from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import jax.numpy as jnp

from dressage.config import whole_number
from dressage.envs.functional import (
    FINAL_OBSERVATION,
    BaseEnv,
    Episodic,
    Info,
    PyTree,
    Reset,
    Step,
    Transition,
    select,
)
from dressage.envs.spaces import Space, as_space
from dressage.envs.wrappers.base import Wrapped, Wrapper
from dressage.errors import ConfigError
from dressage.kernels import split


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EpisodeState:
    """State of an environment whose episodes follow one another.

    Attributes:
        inner: State of the environment.
        length: int32, steps taken in the running episode.
        sums: What is summed over the running episode, all zeros at its start: its return (float32), or the
            `Tally` of many agents.
        offset: int32, steps by which the time limit comes earlier in the first episode; None where never.
        rng: Key for the episodes to come; None where nothing will be drawn.
        start: `(state, observation)` that every episode starts from; None where each is drawn anew.
    """

    inner: PyTree
    length: jax.Array
    sums: PyTree
    offset: jax.Array | None
    rng: jax.Array | None
    start: tuple[PyTree, PyTree] | None


@dataclass(frozen=True)
class AutoReset(BaseEnv):
    """Starts the next episode within the step that ends one, and cuts episodes at `env.max_steps`.

    `step` returns the first observation of the new episode; what the action really led to is in
    `info["final_observation"]`, at every step, so that the structure never changes. The rest of `info` is the
    step's own. `info["episode_return"]` and `info["episode_length"]` are those of the episode of the step.

    Attributes:
        env: The environment to run.
        fixed_init: True draws one initial state and starts every episode from it; False draws anew each time.
    """

    env: BaseEnv
    fixed_init: bool = False

    resets_itself: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.env.resets_itself:
            raise ConfigError(
                f"{type(self.env).__name__} resets itself already; AutoReset goes around it once."
            )

    @property
    def max_steps(self) -> int:  # type: ignore[override]  # read-only: it is the environment's
        """Longest episode in steps."""
        return self.env.max_steps

    def reset(self, rng: jax.Array) -> Reset:
        """Start the first episode; see `BaseEnv.reset`."""
        state, observation, info = begin_episodes(self.env, rng, fixed_init=self.fixed_init)
        return state, observation, _with_statistics(info, observation, state.sums, state.length)

    def step(self, state: EpisodeState, action: PyTree) -> Transition:
        """Make one step, and start the next episode where this one ended; see `BaseEnv.step`."""
        state, step = advance(self.env, state, action)
        state, observation = jax.lax.cond(
            step.ended,
            lambda: restart(self.env, state),
            lambda: (state, step.final_observation),
        )
        info = _with_statistics(step.info, step.final_observation, step.episode_return, step.episode_length)
        return state, observation, step.reward, step.terminated, step.truncated, info

    def restart(self, state: EpisodeState) -> Reset:
        """Start the next episode now; see `BaseEnv.restart`."""
        state, observation = restart(self.env, state)
        return state, observation, _with_statistics({}, observation, state.sums, state.length)

    def observation_space(self, state: EpisodeState) -> Space:
        """Return the space of the observations."""
        return as_space(self.env.observation_space(state.inner))

    def action_space(self, state: EpisodeState) -> Space:
        """Return the space of the actions."""
        return as_space(self.env.action_space(state.inner))


def begin_episodes(
    env: Episodic,
    rng: jax.Array,
    offset: jax.Array | None = None,
    *,
    fixed_init: bool,
    sums: PyTree = None,
) -> tuple[EpisodeState, PyTree, Info]:
    """Start the first of a row of episodes of one environment.

    Args:
        env: The environment.
        rng: A JAX random key.
        offset: int32, steps by which the first episode's time limit comes earlier; None for none.
        fixed_init: Whether all later episodes start from the state drawn here.
        sums: Zeros in the form of what is summed over an episode; None for those of a return.

    Returns:
        `(state, observation, info)`.
    """
    later, first = jax.random.split(rng)
    inner, observation, info = env.reset(first)
    inner, observation = jax.tree.map(jnp.asarray, (inner, observation))
    keeps_nothing = env.resets_itself or (fixed_init and not env.redraws)
    state = EpisodeState(
        inner=inner,
        length=jnp.zeros((), jnp.int32),
        sums=jnp.zeros((), jnp.float32) if sums is None else sums,
        offset=offset,
        rng=None if keeps_nothing else later,
        # Copies, since a buffer that occurs twice in a state cannot be donated to compiled code.
        start=jax.tree.map(jnp.copy, (inner, observation)) if fixed_init and not env.resets_itself else None,
    )
    return state, observation, info


def advance(env: BaseEnv, state: EpisodeState, action: PyTree) -> tuple[EpisodeState, Step]:
    """Make one step and say whether the episode ended, without starting the next.

    Args:
        env: The environment.
        state: Its state among episodes.
        action: One action.

    Returns:
        The state after the step and an unbatched `Step`. Where the environment resets itself, the state is
        that of the next episode already; elsewhere `observation` equals `final_observation`.
    """
    inner, observation, reward, terminated, truncated, info = env.step(state.inner, action)
    reward = jnp.asarray(reward, jnp.float32)
    length = state.length + 1
    episode_return = state.sums + reward
    terminated, truncated = jnp.asarray(terminated, bool), jnp.asarray(truncated, bool)
    following = replace(state, inner=inner, length=length, sums=episode_return)
    final_observation = observation
    if env.resets_itself:
        final_observation = info[FINAL_OBSERVATION]
        info = {name: value for name, value in info.items() if name != FINAL_OBSERVATION}
        following = _count_anew(following, terminated | truncated)
    else:
        elapsed = length if state.offset is None else length + state.offset
        truncated = truncated | (elapsed >= env.max_steps)
    step = Step(
        observation,
        final_observation,
        reward,
        terminated,
        truncated,
        info,
        episode_return,
        episode_length=length,
    )
    return following, step


def restart(env: Episodic, state: EpisodeState) -> tuple[EpisodeState, PyTree]:
    """Start the next episode from where the last one ended.

    Args:
        env: The environment, which does not reset itself.
        state: The state after the episode's last step.

    Returns:
        The state at the next episode's start and its first observation.
    """
    rng, key = (None, None) if state.rng is None else split(state.rng)
    if state.start is None:
        assert key is not None, "a fresh start needs a key"
        inner, observation, _ = env.reset(key)
    else:
        inner, observation = state.start
        inner = inner if key is None else env.redraw(inner, key)
    following = replace(state, inner=_as(state.inner, inner), rng=rng)
    return _count_anew(following, jnp.asarray(True)), observation


@dataclass(frozen=True)
class TimeLimit(Wrapper):
    """Cuts episodes after `limit` steps and reports that as `truncated`.

    Attributes:
        env: The environment.
        limit: Longest episode in steps, at least 1; `max_steps` is the lesser of this and the environment's.

    Raises:
        ConfigError: If `limit` is not a whole number of at least 1.
    """

    limit: int

    def __post_init__(self) -> None:
        number = whole_number(self.limit)
        if number is None or number < 1:
            raise ConfigError(f"TimeLimit's limit must be an integer >= 1, got {self.limit!r}.")

    @property
    def max_steps(self) -> int:  # type: ignore[override]
        """Longest episode in steps."""
        return min(int(self.limit), self.env.max_steps)

    def begin(self, inner: PyTree, observation: PyTree, info: Info) -> tuple[jax.Array, PyTree, Info]:
        """Count from zero."""
        return jnp.zeros((), jnp.int32), observation, info

    def step(self, state: Wrapped, action: PyTree) -> Transition:
        """Make one step; see `BaseEnv.step`."""
        inner, observation, reward, terminated, truncated, info = self.env.step(state.inner, action)
        steps = state.own + 1
        over = steps >= self.limit
        if self.resets_itself:
            ended = jnp.asarray(terminated, bool) | truncated
            inner, observation = self._restart_if(over & ~ended, inner, observation)
            steps = jnp.where(over | ended, 0, steps)
        return Wrapped(inner, steps), observation, reward, terminated, truncated | over, info

    def _restart_if(self, cut: jax.Array, inner: PyTree, observation: PyTree) -> tuple[PyTree, PyTree]:
        # The environment inside starts its next episode only at its own ends; this end it does not know of.
        following: tuple[PyTree, PyTree] = jax.lax.cond(
            cut, lambda: self.env.restart(inner)[:2], lambda: (inner, observation)
        )
        return following


@dataclass(frozen=True)
class EpisodeStatistics(Wrapper):
    """Adds `episode_return` (float32) and `episode_length` (int32 steps) of the running episode to `info`."""

    def begin(
        self, inner: PyTree, observation: PyTree, info: Info
    ) -> tuple[tuple[jax.Array, jax.Array], PyTree, Info]:
        """Count from zero."""
        own = jnp.zeros((), jnp.float32), jnp.zeros((), jnp.int32)
        return own, observation, {**info, "episode_return": own[0], "episode_length": own[1]}

    def step(self, state: Wrapped, action: PyTree) -> Transition:
        """Make one step; see `BaseEnv.step`."""
        inner, observation, reward, terminated, truncated, info = self.env.step(state.inner, action)
        own = state.own[0] + jnp.asarray(reward, jnp.float32), state.own[1] + 1
        info = {**info, "episode_return": own[0], "episode_length": own[1]}
        if self.resets_itself:
            ended = jnp.asarray(terminated, bool) | truncated
            own = select(ended, jax.tree.map(jnp.zeros_like, own), own)
        return Wrapped(inner, own), observation, reward, terminated, truncated, info


def _count_anew(state: EpisodeState, ended: jax.Array) -> EpisodeState:
    return replace(
        state,
        length=jnp.where(ended, 0, state.length),
        sums=select(ended, jax.tree.map(jnp.zeros_like, state.sums), state.sums),
        offset=None if state.offset is None else jnp.where(ended, 0, state.offset),
    )


def _as(template: PyTree, values: PyTree) -> PyTree:
    # A reset may give Python numbers where a step gives arrays; both branches of a `cond` need one dtype.
    return jax.tree.map(lambda old, new: jnp.asarray(new, jnp.asarray(old).dtype), template, values)


def _with_statistics(
    info: Info, final_observation: PyTree, episode_return: jax.Array, length: jax.Array
) -> Info:
    statistics = {"episode_return": episode_return, "episode_length": length}
    return {**info, FINAL_OBSERVATION: final_observation, **statistics}
