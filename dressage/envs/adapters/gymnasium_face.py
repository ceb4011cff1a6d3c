"""A functional environment with the face of a `gymnasium.Env`, for people and tools that expect one."""

from typing import Any

import gymnasium
import jax
import numpy as np
import numpy.typing as npt

from dressage.envs.functional import BaseEnv, PyTree
from dressage.envs.rendering import can_render, render
from dressage.envs.wrappers.base import spaces_of
from dressage.errors import ConfigError

RENDER_FPS = 30


class GymnasiumFace(gymnasium.Env[Any, Any]):
    """Steps a functional environment as a `gymnasium.Env`; made by `to_gymnasium_env`."""

    def __init__(self, env: BaseEnv, render_mode: str | None = None) -> None:
        known = ["rgb_array"] if can_render(env) else []
        self.metadata = {"render_modes": known, "render_fps": RENDER_FPS}
        if render_mode is not None and render_mode not in known:
            raise ConfigError(f"{type(env).__name__} knows the render modes {known}, got {render_mode!r}.")
        observation_space, action_space = spaces_of(env)
        self.env = env
        self.render_mode = render_mode
        self.observation_space = observation_space.to_gymnasium()
        self.action_space = action_space.to_gymnasium()
        self._action_dtype = action_space.dtype
        self._reset = jax.jit(env.reset)
        self._step = jax.jit(env.step)
        self._state: PyTree = None
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; see `gymnasium.Env.reset`."""
        super().reset(seed=seed)
        key = jax.random.key(int(self.np_random.integers(2**31)))
        self._state, observation, info = self._reset(key)
        self._steps = 0
        return self._observed(observation), jax.tree.map(np.asarray, info)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:  # noqa: ANN401
        """Make one step; see `gymnasium.Env.step`.

        Raises:
            gymnasium.error.ResetNeeded: If no episode was started.
        """
        if self._state is None:
            raise gymnasium.error.ResetNeeded(f"Call reset before step of {type(self.env).__name__}.")
        action = np.asarray(action, self._action_dtype)
        self._state, observation, reward, terminated, truncated, info = self._step(self._state, action)
        self._steps += 1
        truncated = bool(truncated) or self._steps >= self.env.max_steps
        info = jax.tree.map(np.asarray, info)
        return self._observed(observation), float(reward), bool(terminated), truncated, info

    def render(self) -> npt.NDArray[np.uint8] | None:
        """Draw the state, uint8 `[H, W, 3]`; None without a render mode."""
        return None if self.render_mode is None or self._state is None else render(self.env, self._state)

    def _observed(self, observation: Any) -> Any:  # noqa: ANN401
        values = np.asarray(observation)
        # There, the element of a space without axes is a number, not an array.
        return values if values.shape else values.astype(self.observation_space.dtype)[()]


def to_gymnasium_env(env: BaseEnv, render_mode: str | None = None) -> GymnasiumFace:
    """Return the host face of a functional environment.

    Args:
        env: The environment; `max_steps` becomes `truncated`.
        render_mode: `"rgb_array"` where the environment has `render(state)`, or None.

    Raises:
        ConfigError: If the environment resets itself, which Gymnasium does not know, or has no such mode.
    """
    if env.resets_itself:
        raise ConfigError(f"{type(env).__name__} resets itself; give the environment without AutoReset.")
    return GymnasiumFace(env, render_mode)
