"""Small rsl_rl vector environments whose numbers a person can follow."""

from typing import Any

import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict


class ConstantReward(VecEnv):
    """Reward 1 at every step, an observation that says nothing, and an end after `limit` steps.

    `how` says how the end is reported: as a time-out with its final observation (`final`), as a time-out
    without (`time_out`), or as a termination (`terminal`).
    """

    def __init__(self, num_envs: int = 4, limit: int = 5, how: str = "final") -> None:
        self.num_envs, self.num_actions, self.max_episode_length = num_envs, 1, limit
        self.episode_length_buf = torch.arange(num_envs) % limit
        self.device, self.cfg, self._how = "cpu", {}, how

    def get_observations(self) -> TensorDict:
        return TensorDict({"policy": torch.ones(self.num_envs, 1)}, batch_size=[self.num_envs])

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict[str, Any]]:
        self.episode_length_buf = self.episode_length_buf + 1
        dones = self.episode_length_buf >= self.max_episode_length
        self.episode_length_buf = torch.where(dones, 0, self.episode_length_buf)
        extras: dict[str, Any] = {} if self._how == "terminal" else {"time_outs": dones}
        if self._how == "final":
            extras["final_observation"] = self.get_observations()
        return self.get_observations(), torch.ones(self.num_envs), dones, extras


class Counting(VecEnv):
    """Copy `i` observes `100 i + t` after `t` steps of all; every third step is a time-out of copy 0.

    The final observation is that number plus a half, so it can be told from the first of the next episode.
    """

    def __init__(self, num_envs: int = 2) -> None:
        self.num_envs, self.num_actions, self.max_episode_length = num_envs, 1, 3
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.long)
        self.device, self.cfg, self.steps = "cpu", {}, 0

    def get_observations(self) -> TensorDict:
        return self._groups(0.0)

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict[str, Any]]:
        self.steps += 1
        dones = torch.zeros(self.num_envs, dtype=torch.bool)
        dones[0] = self.steps % 3 == 0
        extras = {"time_outs": dones, "final_observation": self._groups(0.5)}
        return self._groups(0.0), torch.full((self.num_envs,), float(self.steps)), dones, extras

    def _groups(self, shift: float) -> TensorDict:
        numbers = 100.0 * torch.arange(self.num_envs) + self.steps + shift
        return TensorDict({"policy": numbers.unsqueeze(1)}, batch_size=[self.num_envs])


class Camera(VecEnv):
    """Noisy pictures beside noisy numbers; rewards large actions before bright pictures."""

    def __init__(self, num_envs: int = 4, seed: int = 0) -> None:
        self.num_envs, self.num_actions, self.max_episode_length = num_envs, 2, 4
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.long)
        self.device, self.cfg = "cpu", {}
        self._random = torch.Generator().manual_seed(seed)
        self._draw()

    def get_observations(self) -> TensorDict:
        return self._seen

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict[str, Any]]:
        rewards = self._seen["camera"].mean(dim=(1, 2, 3)) * actions.sum(dim=1)
        self.episode_length_buf = self.episode_length_buf + 1
        dones = self.episode_length_buf >= self.max_episode_length
        self.episode_length_buf = torch.where(dones, 0, self.episode_length_buf)
        self._draw()
        return self._seen, rewards, dones, {"time_outs": dones}

    def _draw(self) -> None:
        camera = torch.rand(self.num_envs, 1, 8, 8, generator=self._random)
        numbers = torch.rand(self.num_envs, 3, generator=self._random)
        self._seen = TensorDict({"policy": numbers, "camera": camera}, batch_size=[self.num_envs])


def mirrored_pendulum(env, obs, actions):
    """The pendulum seen in a mirror: sine, speed and torque change sign."""
    if obs is not None:
        sign = torch.tensor([1.0, -1.0, -1.0])
        both = torch.cat([obs["policy"], obs["policy"] * sign])
        obs = TensorDict({"policy": both}, batch_size=[len(both)])
    return obs, None if actions is None else torch.cat([actions, -actions])
