"""Many copies of one environment stepped together, each with its own episodes."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import jax
import jax.numpy as jnp

from dressage.config import whole_number
from dressage.envs.functional import BaseEnv, Episodic, PyTree, Step, select
from dressage.envs.spaces import Space
from dressage.envs.wrappers.base import spaces_of
from dressage.envs.wrappers.episodes import EpisodeState, advance, begin_episodes, restart
from dressage.errors import ConfigError


class Vector(Protocol):
    """What steps many copies at once: `VectorEnv` and its wrappers."""

    @property
    def env(self) -> PyTree:
        """What is wrapped."""

    @property
    def num_envs(self) -> int:
        """Number of copies `B`."""

    @property
    def max_steps(self) -> int:
        """Longest episode in steps."""

    @property
    def observation_space(self) -> Space:
        """Space of one copy's observations."""

    @property
    def action_space(self) -> Space:
        """Space of one copy's actions."""

    def reset(self, rng: jax.Array) -> tuple[PyTree, PyTree]:
        """Start an episode in every copy; see `VectorEnv.reset`."""

    def step(self, state: PyTree, action: PyTree) -> tuple[PyTree, Step]:
        """Make one step in every copy; see `VectorEnv.step`."""


FEW = 16  # Restarts below this number are not worth gathering.
SHARE = 16  # One copy in so many may end in a step before all restarts are computed.


@dataclass(frozen=True)
class VectorEnv:
    """`num_envs` copies of an environment with time limit, episode statistics and automatic reset.

    Resets are computed only in steps in which some episode ended. An environment that resets itself
    (`AutoReset` anywhere inside) keeps its own way of starting episodes; `fixed_init` does not apply to it.

    Attributes:
        env: The environment to copy.
        num_envs: Number of copies `B`, at least 1.
        fixed_init: True draws each copy's initial state once and starts all of its episodes there; False
            draws a new one for every episode of every copy.
        offset_step: True starts copy `b` as if it had `b * max_steps // B` steps behind it, in its first
            episode only, so that the copies' time limits are spread evenly.

    Raises:
        ConfigError: If `num_envs` is not a whole number of at least 1, or `offset_step` is asked of an
            environment that resets itself.
    """

    env: BaseEnv
    num_envs: int
    fixed_init: bool = False
    offset_step: bool = False

    def __post_init__(self) -> None:
        check_copies(self.num_envs, type(self).__name__)
        if self.offset_step and self.env.resets_itself:
            raise ConfigError(f"offset_step needs an environment without AutoReset inside, got {self.env!r}.")

    @property
    def max_steps(self) -> int:
        """Longest episode in steps."""
        return self.env.max_steps

    @property
    def observation_space(self) -> Space:
        """Space of one copy's observations."""
        return spaces_of(self.env)[0]

    @property
    def action_space(self) -> Space:
        """Space of one copy's actions."""
        return spaces_of(self.env)[1]

    def reset(self, rng: jax.Array) -> tuple[EpisodeState, PyTree]:
        """Start an episode in every copy, each with its own key.

        Args:
            rng: A JAX random key.

        Returns:
            The state, and the observations `[B, ...]`.
        """
        keys = jax.random.split(rng, self.num_envs)
        offsets = jnp.arange(self.num_envs, dtype=jnp.int32) * self.max_steps // self.num_envs
        state, observation, _ = jax.vmap(self._begin)(keys, offsets)
        return state, observation

    def step(self, state: EpisodeState, action: PyTree) -> tuple[EpisodeState, Step]:
        """Make one step in every copy and start the next episode where one ended.

        Args:
            state: The state that `reset` or `step` returned.
            action: Actions `[B, ...]`.

        Returns:
            The state, and a `Step` of `[B, ...]`.
        """
        state, step = jax.vmap(lambda one, act: advance(self.env, one, act))(state, action)
        if self.env.resets_itself:
            return state, step
        state, observation = restart_ended(
            self.env, step.ended, state, step.final_observation, gather=not self.fixed_init
        )
        return state, replace(step, observation=observation)

    def _begin(self, key: jax.Array, offset: jax.Array) -> tuple[EpisodeState, PyTree, PyTree]:
        return begin_episodes(self.env, key, offset if self.offset_step else None, fixed_init=self.fixed_init)


def check_copies(num_envs: int, owner: str) -> None:
    """Refuse a number of copies that is no integer of at least 1."""
    number = whole_number(num_envs)
    if number is None or number < 1:
        raise ConfigError(f"{owner}'s num_envs must be an integer >= 1, got {num_envs!r}.")


def restart_ended(
    env: Episodic,
    ended: jax.Array,
    state: EpisodeState,
    observation: PyTree,
    *,
    gather: bool,
) -> tuple[EpisodeState, PyTree]:
    """Start the next episode in the copies that ended; computed only where one did.

    Args:
        env: The environment.
        ended: `[B]` bool.
        state: State of all copies after the step, `[B, ...]`.
        observation: What the step led to, `[B, ...]`.
        gather: Whether to restart in a large vector a gathered handful, unless more than that ended at once;
            worth it where a restart draws something.

    Returns:
        The state to go on from, and the observation to act on.
    """
    few = ended.shape[0] // SHARE
    restart_some = partial(_restart_all, env)
    if gather and few >= FEW:
        restart_some = partial(_restart_few_or_all, env, few)
    restarted: tuple[EpisodeState, PyTree] = jax.lax.cond(
        jnp.any(ended),
        restart_some,
        lambda ended, state, observation: (state, observation),
        ended,
        state,
        observation,
    )
    return restarted


def _restart_few_or_all(
    env: Episodic, few: int, ended: jax.Array, state: EpisodeState, observation: PyTree
) -> tuple[EpisodeState, PyTree]:
    restarted: tuple[EpisodeState, PyTree] = jax.lax.cond(
        jnp.sum(ended) <= few,
        partial(_restart_few, env, few),
        partial(_restart_all, env),
        ended,
        state,
        observation,
    )
    return restarted


def _restart_few(
    env: Episodic, few: int, ended: jax.Array, state: EpisodeState, observation: PyTree
) -> tuple[EpisodeState, PyTree]:
    rows = jnp.nonzero(ended, size=few, fill_value=ended.shape[0])[0]
    picked = jax.tree.map(lambda leaf: leaf[rows], state)
    fresh = jax.vmap(partial(restart, env))(picked)
    merged: tuple[EpisodeState, PyTree] = jax.tree.map(
        lambda before, new: before.at[rows].set(new, mode="drop"), (state, observation), fresh
    )
    return merged


def _restart_all(
    env: Episodic, ended: jax.Array, state: EpisodeState, observation: PyTree
) -> tuple[EpisodeState, PyTree]:
    fresh = jax.vmap(partial(restart, env))(state)
    return select(ended, fresh, (state, observation))
