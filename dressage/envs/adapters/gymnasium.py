"""Gymnasium environments on the host: many copies, their final observations kept in every autoreset mode."""

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from dressage.config import whole_number
from dressage.envs.adapters.flattening import Flattening
from dressage.envs.spaces import Box, Space, as_space
from dressage.errors import ConfigError, EnvironmentContractError, MissingExtraError, UnsupportedSpaceError

Array: TypeAlias = npt.NDArray[Any]
Maker: TypeAlias = Callable[[], "gymnasium.Env[Any, Any]"]

FINAL_KEYS = ("final_obs", "final_observation")
"""Where vector environments keep the final observation: Gymnasium since 1.1, and before."""


@dataclass(frozen=True)
class HostStep:
    """What one step of a host vector environment gives; NumPy arrays, the first axis `[B]` is the copies.

    Attributes:
        observation: `[B, ...]` float32, to act on next.
        final_observation: `[B, ...]` float32, what the action really led to, before any reset. In a row that
            terminated without the environment's telling, it is the observation acted on: nothing follows it.
        reward: `[B]` float32.
        terminated: `[B]` bool, nothing follows.
        truncated: `[B]` bool, cut by a time limit or the like.
        info: Arrays `[B]` of the step itself by name, each with a mask `_name` of the copies that gave it.
        episode_return: `[B]` float32, of the episode up to and including this step.
        episode_length: `[B]` int32, steps of the episode including this one.
        valid: `[B]` bool, False in rows whose action was ignored, since the copy was being reset (NEXT_STEP).
            Such rows are no experience: no loss, no statistic and no step count includes them.
    """

    observation: Array
    final_observation: Array
    reward: Array
    terminated: Array
    truncated: Array
    info: dict[str, Array]
    episode_return: Array
    episode_length: Array
    valid: Array

    @property
    def ended(self) -> Array:
        """`[B]` bool, whether the episode ended with this step for any reason."""
        return np.asarray(self.terminated | self.truncated)


class HostVectorEnv:
    """Copies of a Gymnasium environment stepped on the host.

    Observations become float32 once: a `Box` keeps its shape, every other space is flattened in Gymnasium's
    own order (`gymnasium.spaces.flatten`). Actions are cast to the environment's dtype and shape and clipped
    into a `Box`, so that `action_space.contains` holds for each.

    Args:
        env: A Gymnasium vector environment.
        name: What error texts call it; by default what it calls itself.
        seed: Seed of a `reset` that is given none.

    Raises:
        EnvironmentContractError: If it does not declare its autoreset mode.
        UnsupportedSpaceError: If its observations cannot be flattened, or no policy can act in its actions.
    """

    def __init__(
        self,
        env: "gymnasium.vector.VectorEnv[Any, Any, Any]",
        name: str | None = None,
        seed: int | None = None,
    ) -> None:
        self.env = env
        self.name = name or _name_of(env)
        self.num_envs = int(env.num_envs)
        self.autoreset_mode = autoreset_mode_of(env, self.name)
        self._flattening = Flattening(env.single_observation_space, self.name)
        self._seed = seed
        self._is_loop = isinstance(env.unwrapped, SyncVectorEnv | AsyncVectorEnv)
        self._copies = np.arange(self.num_envs)
        self.observation_space: Box = self._flattening.space
        self.action_space: Space = action_space_of(env.single_action_space, self.name)
        self._observation: Array = np.zeros((self.num_envs, *self.observation_space.shape), np.float32)
        self._returns: Array = np.zeros(self.num_envs, np.float32)
        self._lengths: Array = np.zeros(self.num_envs, np.int32)
        self._resetting: Array = np.zeros(self.num_envs, bool)

    def reset(self, seed: int | None = None) -> Array:
        """Start an episode in every copy.

        Args:
            seed: Seed from which each copy's own is derived; None for the one given at construction.

        Returns:
            Observations `[B, ...]` float32.
        """
        self._returns, self._lengths = np.zeros_like(self._returns), np.zeros_like(self._lengths)
        self._resetting = np.zeros_like(self._resetting)
        seed = self._seed if seed is None else seed
        observation, _ = self._guarded("reset", lambda: self.env.reset(seed=self._seeds(seed)))
        self._observation = self._observed(observation)
        return self._observation

    def step(self, action: Array) -> HostStep:
        """Make one step in every copy; the environment or this class resets those that end.

        Args:
            action: `[B, *action_shape]`.

        Returns:
            The step.

        Raises:
            EnvironmentContractError: If a copy gave something else than five results that fit its spaces, or
                an episode was truncated and its final observation is nowhere to be found.
        """
        valid = ~self._resetting
        taken = self._action(action)
        observed, reward, terminated, truncated, infos = self._guarded("step", lambda: self.env.step(taken))
        terminated = np.asarray(terminated, bool) & valid
        truncated = np.asarray(truncated, bool) & valid
        reward = np.where(valid, np.asarray(reward, np.float32), np.float32(0))
        observation = self._observed(observed)
        ended = terminated | truncated
        final_observation = observation
        if self.autoreset_mode == AutoresetMode.SAME_STEP:
            final_observation = self._final_observations(observation, terminated, truncated, infos)
        elif self.autoreset_mode == AutoresetMode.DISABLED and ended.any():
            observation = self._observed(self.env.reset(options={"reset_mask": ended})[0])
        self._returns = self._returns + reward
        self._lengths = self._lengths + valid.astype(np.int32)
        step = HostStep(
            observation=observation,
            final_observation=final_observation,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            info=_own_info(infos, ended, valid),
            episode_return=self._returns,
            episode_length=self._lengths,
            valid=valid,
        )
        self._observation = observation
        self._returns = np.where(ended, np.float32(0), self._returns)
        self._lengths = np.where(ended, np.int32(0), self._lengths)
        self._resetting = ended & (self.autoreset_mode == AutoresetMode.NEXT_STEP)
        return step

    def close(self) -> None:
        """Close all copies."""
        self.env.close()

    def _guarded(self, what: str, call: Callable[[], Any]) -> Any:  # noqa: ANN401 (what Gymnasium returns)
        """Call the vector environment; name the place where it cannot put the copies' results together."""
        try:
            return call()
        except (TypeError, ValueError) as error:
            if not _raised_between_copies(error):
                raise
            raise EnvironmentContractError(
                f"{self.name}.{what} returned what Gymnasium cannot take ({error}). It must return what its "
                f"spaces say: observations in {self.env.single_observation_space!r}."
            ) from error

    def _seeds(self, seed: int | None) -> Any:  # noqa: ANN401 (an int, a list of them, or None)
        # Neighbouring seeds would share copies if copy b took seed + b; derived seeds do not.
        if seed is None or not self._is_loop:
            return seed
        # Halved, since some environments take no seed beyond 2**31 - 1.
        return [int(word >> 1) for word in np.random.SeedSequence(seed).generate_state(self.num_envs)]

    def _observed(self, observation: Any) -> Array:  # noqa: ANN401
        return self._flattening.batch(observation, self.env.observation_space, self.num_envs)

    def _action(self, action: Array) -> Any:  # noqa: ANN401 (an array, or arrays without axes)
        space = self.env.single_action_space
        shape = (self.num_envs, *(space.shape or ()))
        values = np.asarray(action)
        if values.size != np.prod(shape):
            raise EnvironmentContractError(
                f"{self.name} takes actions of shape {shape}, got an array of shape {values.shape}."
            )
        values = values.reshape(shape)
        if isinstance(space, gymnasium.spaces.Box):
            if np.issubdtype(space.dtype, np.integer):
                values = np.rint(values)
            # Clipped after the cast too: a float32 bound may lie past the float64 one that it stands for.
            values = np.clip(
                np.clip(values, space.low, space.high).astype(space.dtype), space.low, space.high
            )
        values = values.astype(space.dtype)
        if isinstance(space, gymnasium.spaces.Box) and space.shape == () and self._is_loop:
            # Gymnasium iterates over the batch, and an array's items are numbers, which such a box refuses.
            return tuple(np.asarray(value) for value in values)
        return values

    def _final_observations(
        self, observation: Array, terminated: Array, truncated: Array, infos: Mapping[str, Any]
    ) -> Array:
        final = observation.copy()
        key = next((key for key in FINAL_KEYS if infos.get(key) is not None), None)
        for copy in self._copies[terminated | truncated]:
            told = None if key is None else _row(infos[key], copy, infos.get(f"_{key}"))
            if told is not None:
                final[copy] = self._flattening.single(told)
            elif terminated[copy]:
                final[copy] = self._observation[copy]
            else:
                raise EnvironmentContractError(
                    f"{self.name} (autoreset mode {self.autoreset_mode.name}) truncated the episode of copy "
                    f"{copy}, but info[{FINAL_KEYS[0]!r}] does not hold its final observation; without it "
                    f"the time limit would count as a terminal state."
                )
        return final


@dataclass(frozen=True)
class HostTask:
    """A Gymnasium environment that can be copied.

    Attributes:
        name: What error texts call it.
        maker: Makes one copy.
        max_steps: Time limit in steps, from the environment's specification; None where it has none.
        observation_space: What a copy's observations are once they are float32.
        action_space: What a copy's actions are.
    """

    name: str
    maker: Maker
    max_steps: int | None
    observation_space: Box
    action_space: Space

    def make(self, num_envs: int, seed: int | None = None) -> HostVectorEnv:
        """Make copies; one step of an ended copy gives the final observation and starts the next episode.

        Args:
            num_envs: Number of copies, at least 1.
            seed: Seed of a `reset` that is given none.

        Raises:
            ConfigError: If `num_envs` is no integer of at least 1.
        """
        number = whole_number(num_envs)
        if number is None or number < 1:
            raise ConfigError(f"{self.name} needs num_envs as an integer >= 1, got {num_envs!r}.")
        vector = SyncVectorEnv([self.maker] * number, autoreset_mode=AutoresetMode.SAME_STEP)
        return HostVectorEnv(vector, self.name, seed)


def from_gymnasium(env: Any, options: Mapping[str, Any] | None = None) -> HostTask | HostVectorEnv:  # noqa: ANN401
    """Return a Gymnasium environment as one that learners can step on the host.

    Args:
        env: An id that Gymnasium registers; a function that makes an environment; a ready environment, which
            gives a vector of one; or a ready vector environment, whose own autoreset mode is kept.
        options: Keyword arguments of `gymnasium.make`, with an id only.

    Returns:
        A `HostTask` for an id or a function, which can be copied; a `HostVectorEnv` for what is ready.

    Raises:
        ConfigError: If the id is unknown, an option is refused, or `env` is none of these.
        MissingExtraError: If the environment needs a package that is not installed.
    """
    if options and not isinstance(env, str):
        raise ConfigError(f"Options go with an id alone, got {sorted(options)} with {env!r}.")
    if isinstance(env, str):
        # A partial can be sent to another process, which a lambda cannot.
        return _task(partial(_make, env, dict(options or {})), f"gymnasium:{env}")
    if isinstance(env, gymnasium.vector.VectorEnv):
        return HostVectorEnv(env)
    if isinstance(env, gymnasium.Env):
        vector = SyncVectorEnv([lambda: env], autoreset_mode=AutoresetMode.SAME_STEP)
        return HostVectorEnv(vector, _name_of(env))
    if callable(env):
        return _task(env, getattr(env, "__name__", type(env).__name__))
    raise ConfigError(
        f"from_gymnasium takes an id, a function that makes an environment, an environment or a vector "
        f"environment, got {type(env).__name__}."
    )


def autoreset_mode_of(env: "gymnasium.vector.VectorEnv[Any, Any, Any]", name: str) -> AutoresetMode:
    """Return how a vector environment starts the next episode.

    Args:
        env: The vector environment.
        name: What the error's text calls it.

    Raises:
        EnvironmentContractError: If it does not say, or says something unknown.
    """
    # The attribute first: Gymnasium keeps one metadata dict per environment class, so that of another vector
    # of the same class may have overwritten it.
    declared = getattr(env.unwrapped, "autoreset_mode", None) or (env.metadata or {}).get("autoreset_mode")
    try:
        return declared if isinstance(declared, AutoresetMode) else AutoresetMode(declared)
    except ValueError as error:
        modes = ", ".join(mode.name for mode in AutoresetMode)
        raise EnvironmentContractError(
            f"{name} must declare metadata['autoreset_mode'] as one of {modes} (got {declared!r}): otherwise "
            f"nobody knows which observation an episode ended on."
        ) from error


def action_space_of(space: "gymnasium.Space[Any]", name: str) -> Space:
    """Return a Gymnasium action space as one of ours.

    Raises:
        UnsupportedSpaceError: If no policy can act in it; the text names the environment.
    """
    try:
        return as_space(space)
    except UnsupportedSpaceError as error:
        raise UnsupportedSpaceError(f"The action of {name}: {error}") from error


def _task(maker: Maker, name: str) -> HostTask:
    env = maker()
    if not isinstance(env, gymnasium.Env):
        raise ConfigError(f"{name} must make a gymnasium.Env, got {type(env).__name__}.")
    try:
        return HostTask(
            name=name,
            maker=maker,
            max_steps=env.spec.max_episode_steps if env.spec else None,
            observation_space=Flattening(env.observation_space, name).space,
            action_space=action_space_of(env.action_space, name),
        )
    finally:
        env.close()


def _make(env_id: str, options: Mapping[str, Any]) -> "gymnasium.Env[Any, Any]":
    try:
        # The passive checker costs time at each step; shapes are checked here anyway.
        return gymnasium.make(env_id, **{"disable_env_checker": True, **options})
    except gymnasium.error.UnregisteredEnv as error:
        raise ConfigError(f"gymnasium has no environment {env_id!r}: {error}") from error
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"gymnasium:{env_id} names a module that cannot be imported: {error} "
            "Put its folder on PYTHONPATH."
        ) from error
    except gymnasium.error.DependencyNotInstalled as error:
        raise MissingExtraError(
            f"gymnasium:{env_id} needs a package that is not installed: {error}"
        ) from error
    except gymnasium.error.Error as error:
        raise ConfigError(f"gymnasium cannot make {env_id!r}: {error}") from error
    except TypeError as error:
        if not options:
            raise
        raise ConfigError(f"gymnasium:{env_id} refuses the options {sorted(options)}: {error}") from error


def _name_of(env: Any) -> str:  # noqa: ANN401
    copies = getattr(env.unwrapped, "envs", None)
    spec = getattr(copies[0] if copies else env, "spec", None)
    return f"gymnasium:{spec.id}" if spec else type(env.unwrapped).__name__


def _row(values: Any, copy: int, mask: Any) -> Any:  # noqa: ANN401
    if mask is not None and not np.asarray(mask)[copy]:
        return None
    if isinstance(values, Mapping):
        return {name: value[copy] for name, value in values.items() if not name.startswith("_")}
    return values[copy]


def _raised_between_copies(error: Exception) -> bool:
    """Whether Gymnasium failed in handling what the copies returned, rather than a copy in its own code."""
    frames = [frame.f_globals["__name__"] for frame, _ in traceback.walk_tb(error.__traceback__)]
    return all(name.startswith(("gymnasium.vector", "numpy", "functools", __name__)) for name in frames)


def _own_info(infos: Mapping[str, Any], ended: Array, valid: Array) -> dict[str, Array]:
    """Return the numbers that the steps themselves reported.

    In a copy that was reset, `infos` already speaks of the new episode: in SAME_STEP what the step said
    stands in `final_info`, in NEXT_STEP the row is none of a step.
    """
    final = infos.get("final_info")
    own: dict[str, Array] = {}
    old = ended if isinstance(final, Mapping) else np.zeros_like(ended)
    for source, rows in ((infos, valid & ~old), (final, old)):
        if isinstance(source, Mapping):
            _copy_numbers(source, rows, own)
    return own


def _copy_numbers(source: Mapping[str, Any], rows: Array, own: dict[str, Array]) -> None:
    for name, values in source.items():
        numeric = isinstance(values, np.ndarray) and values.dtype.kind in "biuf" and len(values) == len(rows)
        if name.startswith("_") or not numeric:
            continue
        given = rows & np.asarray(source.get(f"_{name}", True))
        if not given.any():
            continue
        # A step may report a fraction where a reset reported a whole number.
        dtype = np.result_type(values, own.get(name, values))
        known = own.get(name, np.zeros_like(values)).astype(dtype)
        known[given] = values[given]
        own[name] = known
        own[f"_{name}"] = given | own.get(f"_{name}", np.zeros(len(rows), bool))
