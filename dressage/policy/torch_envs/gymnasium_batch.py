"""Gymnasium's vector environments as rsl_rl vector environments."""

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from rsl_rl.env import VecEnv
from tensordict import TensorDict
from torch import Tensor

from dressage.errors import ConfigError, UnsupportedSpaceError

FINAL = "final_obs"
"""Key of Gymnasium's infos for the observations that episodes ended with."""


class GymnasiumBatch(VecEnv):  # type: ignore[misc]  # rsl_rl ships no types.
    """A `gymnasium.vector.VectorEnv` that speaks rsl_rl's protocol.

    A Dict observation gives one group an entry, any other the group `policy`. Actions are clipped to the
    space's bounds, since rsl_rl's Gaussians know none. `extras` of a step hold `time_outs` and, where an
    episode ended, `final_observation`.

    Args:
        env: The vector environment. It must reset within the step that ends an episode
            (`AutoresetMode.SAME_STEP`): the default of Gymnasium spends a further step on the reset, in which
            the action is ignored.
        seed: Seeds the first reset; None leaves it to Gymnasium.
        device: Where the tensors go.

    Raises:
        ConfigError: If the environment resets in another way.
        UnsupportedSpaceError: If an action is no Box of one axis.
    """

    def __init__(self, env: VectorEnv[Any, Any, Any], seed: int | None = None, device: str = "cpu") -> None:
        _check_autoreset(env)
        space = env.single_action_space
        if not isinstance(space, spaces.Box) or len(space.shape) != 1:
            raise UnsupportedSpaceError(
                f"rsl_rl acts in a Box of one axis, and this environment takes {space}."
            )
        self._env = env
        self.num_envs = env.num_envs
        self.num_actions = space.shape[0]
        self.max_episode_length = _time_limit(env)
        self.device = device
        self.cfg: dict[str, Any] = {"num_envs": env.num_envs, "seed": seed}
        self.episode_length_buf = torch.zeros(self.num_envs, dtype=torch.long, device=device)
        self._bounds = (space.low, space.high)
        observation, _ = env.reset(seed=seed)
        self._groups = self._as_groups(observation)

    @property
    def unwrapped(self) -> VectorEnv[Any, Any, Any]:
        """Gymnasium's environment."""
        return self._env

    def get_observations(self) -> TensorDict:
        """Return the present observations by group."""
        return self._groups

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        """Take one step in every copy; see `rsl_rl.env.VecEnv.step`."""
        clipped = np.clip(actions.detach().cpu().numpy(), *self._bounds)
        observation, rewards, terminated, truncated, infos = self._env.step(clipped)
        self._groups = self._as_groups(observation)
        dones = self._tensor(terminated | truncated)
        self.episode_length_buf = torch.where(dones, 0, self.episode_length_buf + 1)
        # rsl_rl adds the value to what it calls a time-out, and nothing follows a termination.
        extras: dict[str, Any] = {"time_outs": self._tensor(truncated & ~terminated)}
        if FINAL in infos:
            extras["final_observation"] = self._final_groups(infos)
        return self._groups, self._tensor(rewards).float(), dones, extras

    def close(self) -> None:
        """Close Gymnasium's environment."""
        self._env.close()

    def _final_groups(self, infos: dict[str, Any]) -> TensorDict:
        """Lay the final observations of the episodes that ended over the present ones."""
        groups = self._groups.clone()
        for row in np.flatnonzero(infos["_" + FINAL]):
            final = infos[FINAL][row]
            entries = final if isinstance(final, dict) else {"policy": final}
            for name, value in entries.items():
                groups[name][row] = self._tensor(np.asarray(value)).float()
        return groups

    def _as_groups(self, observation: Any) -> TensorDict:  # noqa: ANN401 (an array or a dict of them)
        entries = observation if isinstance(observation, dict) else {"policy": observation}
        tensors = {name: self._tensor(value).float() for name, value in entries.items()}
        return TensorDict(tensors, batch_size=[self.num_envs], device=self.device)

    def _tensor(self, array: Any) -> Tensor:  # noqa: ANN401 (NumPy's arrays of any dtype)
        return torch.tensor(array, device=self.device)


def make_gymnasium_batch(
    env_id: str, num_envs: int, seed: int | None = None, device: str = "cpu"
) -> GymnasiumBatch:
    """Make copies of a registered Gymnasium environment, stepped one after the other.

    Args:
        env_id: Its registered name.
        num_envs: Number of copies.
        seed: Seeds the first reset.
        device: Where the tensors go.
    """
    env = gymnasium.make_vec(
        env_id,
        num_envs=num_envs,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": AutoresetMode.SAME_STEP},
    )
    return GymnasiumBatch(env, seed, device)


def _check_autoreset(env: VectorEnv[Any, Any, Any]) -> None:
    mode = env.metadata.get("autoreset_mode")
    if mode != AutoresetMode.SAME_STEP:
        raise ConfigError(
            f"The vector environment resets by {mode}; rsl_rl needs AutoresetMode.SAME_STEP. Make it with: "
            "gymnasium.make_vec(ID, num_envs=N, vector_kwargs={'autoreset_mode': AutoresetMode.SAME_STEP})"
        )


def _time_limit(env: VectorEnv[Any, Any, Any]) -> int:
    """Return the time limit that the environment was registered with, or 0 where it has none."""
    spec = getattr(env, "spec", None)
    return int(getattr(spec, "max_episode_steps", None) or 0)
