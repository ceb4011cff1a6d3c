"""Wrappers of one environment's observation: a history of the last ones."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from dressage.config import whole_number
from dressage.envs.functional import FINAL_OBSERVATION, Info, PyTree, Transition
from dressage.envs.spaces import Box
from dressage.envs.wrappers.base import Wrapped, Wrapper, spaces_of
from dressage.errors import ConfigError, UnsupportedSpaceError


@dataclass(frozen=True)
class ObservationHistory(Wrapper):
    """Observes the last `length` observations of the running episode, `[length, *shape]`, oldest first.

    At an episode's start, its first observation fills all places, so that nothing of the episode before is
    seen.

    Attributes:
        env: An environment whose observations are a `Box`.
        length: Number of observations, at least 1.

    Raises:
        ConfigError: If `length` is not a whole number of at least 1.
        UnsupportedSpaceError: If the observation space is no `Box`.
    """

    length: int

    def __post_init__(self) -> None:
        number = whole_number(self.length)
        if number is None or number < 1:
            raise ConfigError(f"ObservationHistory's length must be an integer >= 1, got {self.length!r}.")
        space, _ = spaces_of(self.env)
        if not isinstance(space, Box):
            owner = type(self.env).__name__
            raise UnsupportedSpaceError(f"ObservationHistory needs a Box to observe; {owner} has {space!r}.")

    def begin(self, inner: PyTree, observation: PyTree, info: Info) -> tuple[jax.Array, jax.Array, Info]:
        """Fill the history with the first observation."""
        history = self._filled(observation)
        if self.resets_itself:
            info = {**info, FINAL_OBSERVATION: self._filled(info[FINAL_OBSERVATION])}
        return history, history, info

    def step(self, state: Wrapped, action: PyTree) -> Transition:
        """Make one step; see `BaseEnv.step`."""
        inner, observation, reward, terminated, truncated, info = self.env.step(state.inner, action)
        reached = info[FINAL_OBSERVATION] if self.resets_itself else observation
        history = jnp.concatenate([state.own[1:], jnp.asarray(reached, state.own.dtype)[None]])
        if self.resets_itself:
            info = {**info, FINAL_OBSERVATION: history}
            ended = jnp.asarray(terminated, bool) | truncated
            history = jnp.where(ended, self._filled(observation), history)
        return Wrapped(inner, history), history, reward, terminated, truncated, info

    def observation_space(self, state: Wrapped) -> Box:
        """`Box` of `[length, *shape]` with the environment's bounds at every place."""
        space = super().observation_space(state)
        assert isinstance(space, Box), space
        return Box(space.low, space.high, (int(self.length), *space.shape), space.dtype)

    def _filled(self, observation: PyTree) -> jax.Array:
        observation = jnp.asarray(observation)
        return jnp.broadcast_to(observation, (int(self.length), *observation.shape))
