"""Wrappers of the action: squashed or clipped into its bounds, or delayed."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from dressage.config import whole_number
from dressage.envs.functional import BaseEnv, Info, PyTree, Transition, select
from dressage.envs.spaces import Box, Space
from dressage.envs.wrappers.base import Wrapped, Wrapper, spaces_of
from dressage.equations.action_scaling import check_bounds, scale_action
from dressage.errors import ConfigError, UnsupportedSpaceError


@dataclass(frozen=True)
class SquashAction(Wrapper):
    r"""Takes any real number `u` and acts with $a = l + (\tanh u + 1)(h - l)/2$ within the bounds $l, h$.

    Attributes:
        env: An environment whose actions are a bounded float `Box`.

    Raises:
        ConfigError: If a bound is infinite (or the dtype's largest number), or two bounds are equal; the text
            names the dimension.
        UnsupportedSpaceError: If the action space is no float `Box`.
    """

    def __post_init__(self) -> None:
        space = float_box_of(self.env, type(self).__name__)
        # Bounds drawn anew in each episode are traced and cannot be looked at here.
        if not any(isinstance(bound, jax.core.Tracer) for bound in (space.low, space.high)):
            check_bounds(space.low, space.high, squash=True)

    def step(self, state: Wrapped, action: PyTree) -> Transition:
        """Make one step with the squashed action; see `BaseEnv.step`."""
        space = super().action_space(state)
        assert isinstance(space, Box), space
        squashed = scale_action(jnp.tanh(jnp.asarray(action, space.dtype)), space.low, space.high)
        inner, *rest = self.env.step(state.inner, squashed)
        return Wrapped(inner, None), *rest

    def action_space(self, state: Wrapped) -> Box:
        """Unbounded `Box` of the environment's action shape."""
        return _unbounded(super().action_space(state))


@dataclass(frozen=True)
class ClipAction(Wrapper):
    """Takes any real number and acts with the nearest action within the bounds, which may be infinite.

    Attributes:
        env: An environment whose actions are a float `Box`.

    Raises:
        UnsupportedSpaceError: If the action space is no float `Box`.
    """

    def __post_init__(self) -> None:
        float_box_of(self.env, type(self).__name__)

    def step(self, state: Wrapped, action: PyTree) -> Transition:
        """Make one step with the clipped action; see `BaseEnv.step`."""
        space = super().action_space(state)
        assert isinstance(space, Box), space
        inner, *rest = self.env.step(
            state.inner, jnp.clip(jnp.asarray(action, space.dtype), space.low, space.high)
        )
        return Wrapped(inner, None), *rest

    def action_space(self, state: Wrapped) -> Box:
        """Unbounded `Box` of the environment's action shape."""
        return _unbounded(super().action_space(state))


@dataclass(frozen=True)
class ActionDelay(Wrapper):
    """Acts at step `t` with the action given at step `t - delay` of the same episode.

    Until the first action arrives, the environment gets the neutral one: zero or the bound nearest to it in a
    `Box`, the first value in a discrete space.

    Attributes:
        env: The environment.
        delay: Steps, at least 0.

    Raises:
        ConfigError: If `delay` is not a whole number of at least 0.
    """

    delay: int

    def __post_init__(self) -> None:
        number = whole_number(self.delay)
        if number is None or number < 0:
            raise ConfigError(f"ActionDelay's delay must be an integer >= 0, got {self.delay!r}.")

    def begin(self, inner: PyTree, observation: PyTree, info: Info) -> tuple[jax.Array, PyTree, Info]:
        """Fill the queue with the neutral action: `[delay, *action_shape]`."""
        return self._empty_queue(inner), observation, info

    def step(self, state: Wrapped, action: PyTree) -> Transition:
        """Make one step with the action that arrives now; see `BaseEnv.step`."""
        queue = jnp.concatenate([state.own, jnp.asarray(action, state.own.dtype)[None]])
        inner, observation, reward, terminated, truncated, info = self.env.step(state.inner, queue[0])
        waiting = queue[1:]
        if self.resets_itself:
            ended = jnp.asarray(terminated, bool) | truncated
            waiting = select(ended, self._empty_queue(inner), waiting)
        return Wrapped(inner, waiting), observation, reward, terminated, truncated, info

    def _empty_queue(self, inner: PyTree) -> jax.Array:
        space = self.action_space(Wrapped(inner, None))
        neutral = jnp.clip(0, space.low, space.high) if isinstance(space, Box) else space.start
        filled = jnp.broadcast_to(jnp.asarray(neutral, space.dtype), (int(self.delay), *space.shape))
        return filled


def float_box_of(env: BaseEnv, asker: str) -> Box:
    """Return an environment's action space if it is a `Box` of floats.

    Args:
        env: The environment.
        asker: Who needs it, for the error's text.

    Raises:
        UnsupportedSpaceError: If it is another space.
    """
    _, space = spaces_of(env)
    if not isinstance(space, Box) or not jnp.issubdtype(space.dtype, jnp.floating):
        raise UnsupportedSpaceError(
            f"{asker} needs an action space Box of floats; {type(env).__name__} has {space!r}."
        )
    return space


def _unbounded(space: Space) -> Box:
    return Box(-np.inf, np.inf, space.shape, space.dtype)
