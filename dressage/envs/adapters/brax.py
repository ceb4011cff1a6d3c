"""Brax environments as functional environments, without Brax's own wrappers."""

import warnings
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dressage.config import suggest, whole_number
from dressage.envs.adapters.extras import import_extra
from dressage.envs.functional import BaseEnv, PyTree, Reset, Transition
from dressage.envs.spaces import Box
from dressage.errors import ConfigError, UnsupportedSpaceError

EPISODE_STEPS = 1000  # the episode length that Brax trains with by default


@dataclass(frozen=True, eq=False)
class BraxEnv(BaseEnv):
    """A raw Brax environment behind our interface.

    Brax's episode and auto-reset wrappers overwrite the final observation and report a time limit as the end;
    they are left out. `terminated` is Brax's `done`, `truncated` comes from our time limit alone, and `info`
    holds Brax's metrics. Actions lie in [-1, 1].

    Attributes:
        env: The Brax environment, not wrapped.
        max_steps: Time limit in steps.
    """

    env: Any
    max_steps: int = EPISODE_STEPS

    def reset(self, rng: jax.Array) -> Reset:
        """Start an episode; see `BaseEnv.reset`."""
        state = jax.tree.map(jnp.asarray, self.env.reset(rng))
        return state, state.obs, dict(state.metrics)

    def step(self, state: PyTree, action: jax.Array) -> Transition:
        """Make one step; see `BaseEnv.step`."""
        state = self.env.step(state, action)
        terminated = jnp.asarray(state.done) > 0.5
        return (
            state,
            state.obs,
            jnp.asarray(state.reward, jnp.float32),
            terminated,
            False,
            dict(state.metrics),
        )

    def observation_space(self, state: PyTree) -> Box:
        """Unbounded `Box` of the observation's shape."""
        if not hasattr(state.obs, "shape"):
            raise UnsupportedSpaceError(
                f"brax:{type(self.env).__name__} observes a {type(state.obs).__name__}; one array is needed."
            )
        return Box(-np.inf, np.inf, state.obs.shape, state.obs.dtype)

    def action_space(self, state: PyTree) -> Box:
        """`Box` within ±1, as Brax trains."""
        return Box(-1.0, 1.0, (int(self.env.action_size),))


def from_brax(env: Any, *, max_steps: int = EPISODE_STEPS, backend: str | None = None) -> BraxEnv:  # noqa: ANN401
    """Return a Brax environment as one of ours.

    Args:
        env: A name that Brax registers, or a raw Brax environment; Brax's wrappers are taken off.
        max_steps: Time limit in steps, at least 1.
        backend: Physics of a named environment (`generalized`, `positional`, `spring`, `mjx`); None for its
            own default.

    Returns:
        The environment.

    Raises:
        MissingExtraError: If Brax is not installed.
        ConfigError: If the name is unknown, `max_steps` is no integer of at least 1, or `backend` is given
            for an environment that is made already.
    """
    envs = import_extra("brax.envs", "envs")
    number = whole_number(max_steps)
    if number is None or number < 1:
        raise ConfigError(f"from_brax needs max_steps as an integer >= 1, got {max_steps!r}.")
    if isinstance(env, str):
        return BraxEnv(_named(envs, env, backend), number)
    if backend is not None:
        raise ConfigError(f"backend={backend!r} cannot be given for an environment that is made already.")
    return BraxEnv(env.unwrapped, number)


def _named(envs: Any, name: str, backend: str | None) -> Any:  # noqa: ANN401
    known = sorted(envs._envs)  # noqa: SLF001 (Brax has no public list of its environments)
    if name not in known:
        raise ConfigError(f"brax has no environment {name!r}.{suggest(name, known)}")
    with warnings.catch_warnings():
        # Brax recommends its successor whenever it reads a model.
        warnings.filterwarnings("ignore", "Brax System, piplines and environments", UserWarning)
        return envs.get_environment(name) if backend is None else envs.get_environment(name, backend=backend)
