"""What all wrappers of one environment share: where the wrapped state is kept, and how an episode begins."""

from collections.abc import Callable
from dataclasses import dataclass

import jax

from dressage.envs.functional import BaseEnv, Info, PyTree, Reset
from dressage.envs.spaces import Space, as_space


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Wrapped:
    """State of a wrapper.

    Attributes:
        inner: State of the wrapped environment.
        own: What the wrapper itself remembers; None where nothing.
    """

    inner: PyTree
    own: PyTree


@dataclass(frozen=True)
class Wrapper(BaseEnv):
    """Base of the wrappers of one environment; passes everything through.

    A wrapper says in `begin` what it remembers when an episode starts, and in `step` what it changes. Around
    an environment that resets itself, `step` must treat `info["final_observation"]` like an observation of
    the episode that ended, and its own memory must begin anew with the new episode.

    Attributes:
        env: The wrapped environment.
    """

    # The one base between BaseEnv and its wrappers, so that each of them states its difference alone.
    env: BaseEnv

    @property
    def max_steps(self) -> int:  # type: ignore[override]  # read-only here: it follows the wrapped environment
        """Longest episode in steps."""
        return self.env.max_steps

    @property
    def resets_itself(self) -> bool:  # type: ignore[override]
        """Whether the wrapped environment resets itself."""
        return self.env.resets_itself

    @property
    def redraws(self) -> bool:  # type: ignore[override]
        """Whether the wrapped environment draws something anew in each episode."""
        return self.env.redraws

    def begin(self, inner: PyTree, observation: PyTree, info: Info) -> tuple[PyTree, PyTree, Info]:
        """Start an episode from what the wrapped environment starts with.

        Returns:
            What the wrapper remembers, and what it makes of observation and info.
        """
        return None, observation, info

    def reset(self, rng: jax.Array) -> Reset:
        """Start an episode; see `BaseEnv.reset`."""
        return self._wrap(*self.env.reset(rng))

    def restart(self, state: Wrapped) -> Reset:
        """Start the next episode of an environment that resets itself; see `BaseEnv.restart`."""
        return self._wrap(*self.env.restart(state.inner))

    def redraw(self, state: Wrapped, rng: jax.Array) -> Wrapped:
        """Draw anew what differs between episodes; see `BaseEnv.redraw`."""
        return Wrapped(self.env.redraw(state.inner, rng), state.own)

    def observation_space(self, state: Wrapped) -> Space:
        """Return the space of the observations."""
        return as_space(self.env.observation_space(state.inner))

    def action_space(self, state: Wrapped) -> Space:
        """Return the space of the actions."""
        return as_space(self.env.action_space(state.inner))

    def _wrap(self, inner: PyTree, observation: PyTree, info: Info) -> Reset:
        own, observation, info = self.begin(inner, observation, info)
        return Wrapped(inner, own), observation, info


def spaces_of(env: BaseEnv) -> tuple[Space, Space]:
    """Return an environment's observation and action space, concrete also inside a traced function.

    Args:
        env: A functional environment.

    Returns:
        `(observation_space, action_space)` of a freshly reset environment.
    """
    observation_space, action_space = concrete_spaces(
        env.reset, lambda state: (as_space(env.observation_space(state)), as_space(env.action_space(state)))
    )
    return observation_space, action_space


def concrete_spaces(
    reset: Callable[[jax.Array], tuple[PyTree, ...]], spaces_in: Callable[[PyTree], PyTree]
) -> PyTree:
    """Return spaces of a freshly reset environment, concrete also inside a traced function.

    Args:
        reset: From a key to a tuple that starts with the state.
        spaces_in: From the state to a pytree of spaces.

    Returns:
        The pytree of spaces.
    """
    found: list[PyTree] = []

    def spaces(key: jax.Array) -> PyTree:
        found.append(spaces_in(reset(key)[0]))
        # Spaces of other libraries are no arrays that a traced function could return.
        return jax.tree.map(lambda leaf: leaf if isinstance(leaf, jax.Array) else None, found[-1])

    with jax.ensure_compile_time_eval():
        key = jax.random.key(0)
        jax.eval_shape(spaces, key)
        # Bounds that are plain numbers need no compilation; those computed by JAX do.
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(found[0])):
            bounds = jax.jit(spaces)(key)
            return jax.tree.map(lambda leaf, bound: leaf if bound is None else bound, found[-1], bounds)
    return found[0]
