"""Domain randomisation: parameters of an environment drawn anew in each episode."""

import copy
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias, TypeGuard, cast

import jax

from dressage.config import check_names
from dressage.envs.functional import BaseEnv, PyTree, Reset, Transition
from dressage.envs.spaces import Space, as_space
from dressage.envs.wrappers.base import Wrapped, Wrapper
from dressage.errors import ConfigError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Draw: TypeAlias = Callable[[jax.Array], Mapping[str, PyTree]]


@dataclass(frozen=True)
class UniformParameters:
    """Draws each named parameter uniformly between its two bounds, independently of the others.

    Attributes:
        ranges: `(name, low, high)` of each parameter, in the parameter's unit, with `low <= high`.
    """

    ranges: tuple[tuple[str, float, float], ...]

    def __call__(self, rng: jax.Array) -> dict[str, jax.Array]:
        """Draw all parameters, float32 scalars.

        Args:
            rng: A JAX random key.
        """
        keys = jax.random.split(rng, len(self.ranges))
        return {
            name: jax.random.uniform(key, minval=low, maxval=high)
            for key, (name, low, high) in zip(keys, self.ranges, strict=True)
        }


@dataclass(frozen=True)
class RandomizeParameters(Wrapper):
    """Runs every episode with newly drawn parameters of the environment.

    The environment is a dataclass (like those of the suite) whose fields are its parameters; wrappers around
    it are looked through. `info["parameters"]` has those of the episode. Where `fixed_init` keeps an initial
    state, the parameters are drawn anew all the same and the kept state is left as it was.

    Attributes:
        env: The environment; it must not reset itself (put `AutoReset` outside).
        parameters: `{name: (low, high)}` for uniform draws, or a function of a key that gives
            `{name: value}`.

    Raises:
        ConfigError: If a name is no parameter of the environment, a range is reversed, or the environment
            resets itself.
    """

    parameters: Mapping[str, tuple[float, float]] | Draw

    redraws: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.env.resets_itself:
            raise ConfigError(f"Put RandomizeParameters inside AutoReset, not around it: {self.env!r}.")
        if isinstance(self.parameters, Mapping):
            # A tuple can be hashed, so the environment stays a static argument of compiled functions.
            object.__setattr__(self, "parameters", _uniform(self.parameters))
        names = jax.eval_shape(self._draw, jax.random.key(0))
        check_names(names, _parameter_names(self.env), type(self.env).__name__)

    def reset(self, rng: jax.Array) -> Reset:
        """Draw parameters and start an episode with them; see `BaseEnv.reset`."""
        parameters_key, key = jax.random.split(rng)
        parameters = self._draw(parameters_key)
        inner, observation, info = self._with(parameters).reset(key)
        return Wrapped(inner, parameters), observation, {**info, "parameters": parameters}

    def step(self, state: Wrapped, action: PyTree) -> Transition:
        """Make one step with the episode's parameters; see `BaseEnv.step`."""
        inner, observation, reward, terminated, truncated, info = self._with(state.own).step(
            state.inner, action
        )
        info = {**info, "parameters": state.own}
        return Wrapped(inner, state.own), observation, reward, terminated, truncated, info

    def redraw(self, state: Wrapped, rng: jax.Array) -> Wrapped:
        """Draw other parameters for the same initial state."""
        parameters_key, key = jax.random.split(rng)
        return Wrapped(self.env.redraw(state.inner, key), self._draw(parameters_key))

    def observation_space(self, state: Wrapped) -> Space:
        """Return the space of the observations under the episode's parameters."""
        return as_space(self._with(state.own).observation_space(state.inner))

    def action_space(self, state: Wrapped) -> Space:
        """Return the space of the actions under the episode's parameters."""
        return as_space(self._with(state.own).action_space(state.inner))

    def _draw(self, rng: jax.Array) -> dict[str, PyTree]:
        assert callable(self.parameters), "ranges were made a function at construction"
        return dict(self.parameters(rng))

    def _with(self, parameters: Mapping[str, PyTree]) -> BaseEnv:
        return _replaced(self.env, parameters)


def _uniform(ranges: Mapping[str, tuple[float, float]]) -> UniformParameters:
    for name, (low, high) in ranges.items():
        if not low <= high:
            raise ConfigError(f"The range of parameter {name!r} must be (low, high), got ({low}, {high}).")
    return UniformParameters(tuple((name, float(low), float(high)) for name, (low, high) in ranges.items()))


def _parameter_names(env: BaseEnv) -> list[str]:
    if isinstance(env, Wrapper):
        return _parameter_names(env.env)
    names = [field.name for field in dataclasses.fields(env)] if _is_dataclass(env) else []
    # The time limit is a fixed number of the compiled program.
    return [name for name in names if name != "max_steps"]


def _replaced(env: BaseEnv, parameters: Mapping[str, PyTree]) -> BaseEnv:
    if isinstance(env, Wrapper):
        # A copy, since a wrapper was checked when it was made and drawn values cannot be checked.
        outside = copy.copy(env)
        object.__setattr__(outside, "env", _replaced(env.env, parameters))
        return outside
    assert _is_dataclass(env), "its fields were looked up at construction"
    return cast(BaseEnv, dataclasses.replace(env, **parameters))


def _is_dataclass(env: object) -> "TypeGuard[DataclassInstance]":
    return dataclasses.is_dataclass(env) and not isinstance(env, type)
