"""Gymnax environments as functional environments: no automatic reset, a time limit that is no termination."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from dressage.config import suggest, whole_number
from dressage.envs.adapters.extras import import_extra
from dressage.envs.functional import BaseEnv, PyTree, Reset, Transition
from dressage.envs.spaces import Box, Discrete, Space
from dressage.errors import ConfigError, UnsupportedSpaceError


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class GymnaxState:
    """State of an adapted gymnax environment.

    Attributes:
        inner: Gymnax's own state.
        rng: Key of the episode.
        steps: int32, steps taken; numbers the keys of the steps.
    """

    inner: PyTree
    rng: jax.Array
    steps: jax.Array


@dataclass(frozen=True, eq=False)
class GymnaxEnv(BaseEnv):
    """A gymnax environment behind our interface.

    `step_env` and `reset_env` are called, so gymnax's own automatic reset never runs. Its time limit becomes
    `max_steps` and `truncated`; `terminated` is gymnax's natural end alone.

    Attributes:
        env: The gymnax environment.
        params: Its parameters.
        max_steps: Time limit in steps.
    """

    env: Any
    params: Any
    max_steps: int

    def reset(self, rng: jax.Array) -> Reset:
        """Start an episode; see `BaseEnv.reset`."""
        later, first = jax.random.split(rng)
        observation, inner = self.env.reset_env(first, self.params)
        return (
            GymnaxState(_strong(inner), later, jnp.zeros((), jnp.int32)),
            self._observed(observation, inner),
            {},
        )

    def step(self, state: GymnaxState, action: PyTree) -> Transition:
        """Make one step; see `BaseEnv.step`."""
        # A folded-in count costs nothing where nothing is drawn; a key to split would have to be carried.
        key = jax.random.fold_in(state.rng, state.steps)
        observation, inner, reward, terminated, info = self.env.step_env(
            key, state.inner, action, self.params
        )
        following = GymnaxState(inner, state.rng, state.steps + 1)
        flags = jnp.asarray(terminated, bool), jnp.asarray(self.env.is_truncated(inner, self.params), bool)
        reward = jnp.asarray(reward, jnp.float32).reshape(())
        return following, self._observed(observation, inner), reward, *flags, dict(info)

    def observation_space(self, state: GymnaxState) -> Space:
        """Return the space of the observations."""
        return _space(self.env.observation_space(self.params), f"the observation of gymnax:{self.env.name}")

    def action_space(self, state: GymnaxState) -> Space:
        """Return the space of the actions."""
        return _space(self.env.action_space(self.params), f"the action of gymnax:{self.env.name}")

    def _observed(self, observation: PyTree, inner: PyTree) -> jax.Array:
        space = _space(self.env.observation_space(self.params), f"the observation of gymnax:{self.env.name}")
        return jnp.asarray(observation, space.dtype)


def from_gymnax(env: Any, params: Any = None, *, max_steps: int | None = None) -> GymnaxEnv:  # noqa: ANN401
    """Return a gymnax environment as one of ours.

    Args:
        env: A name that gymnax registers, or a gymnax environment.
        params: Its parameters; None for gymnax's defaults.
        max_steps: Time limit in steps; None for the parameters' `max_steps_in_episode`.

    Returns:
        The environment.

    Raises:
        MissingExtraError: If gymnax is not installed.
        ConfigError: If the name is unknown, or no time limit is given where gymnax has none.
    """
    gymnax = import_extra("gymnax", "envs")
    if isinstance(env, str):
        if env not in gymnax.registered_envs:
            raise ConfigError(f"gymnax has no environment {env!r}.{suggest(env, gymnax.registered_envs)}")
        env, _ = gymnax.make(env)
    params = env.default_params if params is None else params
    if max_steps is not None:
        number = whole_number(max_steps)
        if number is None or number < 1:
            raise ConfigError(f"from_gymnax needs max_steps as an integer >= 1, got {max_steps!r}.")
        params = params.replace(max_steps_in_episode=number)
    return GymnaxEnv(env, params, int(params.max_steps_in_episode))


def _space(space: Any, whose: str) -> Space:  # noqa: ANN401
    # By name, since gymnax's classes are known only once gymnax is imported.
    kind = type(space).__name__
    if kind == "Box":
        return Box(space.low, space.high, space.shape, space.dtype)
    if kind == "Discrete":
        return Discrete(space.n, dtype=space.dtype)
    raise UnsupportedSpaceError(f"The space {kind} of {whose} is not supported. Supported: Box, Discrete.")


def _strong(tree: PyTree) -> PyTree:
    return jax.tree.map(jnp.asarray, tree)
