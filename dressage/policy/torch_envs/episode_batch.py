"""Owns what every torch task needs besides its physics: episodes, their ends, and rsl_rl's protocol."""

from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict
from torch import Tensor

from dressage.config import whole_number
from dressage.errors import ConfigError, EnvironmentContractError


class EpisodeBatch(VecEnv):  # type: ignore[misc]  # rsl_rl ships no types.
    """A batch of copies of one task, stepped together; episodes that end begin anew in the same step.

    A task gives `_new_states`, `_advance` and `_observe`. `extras` of a step hold `time_outs` and
    `final_observation`: the observations that really followed the action, of all copies.

    Args:
        num_envs: Number of copies, at least 1.
        num_actions: Length of one copy's action.
        max_steps: Time limit of an episode, steps.
        step_dt: Control period, seconds.
        seed: Draws the initial states; torch's own random stream is left alone.
        device: Where the states live.

    Raises:
        ConfigError: If `num_envs` or `max_steps` is no whole number of at least 1.
    """

    def __init__(
        self, num_envs: int, num_actions: int, max_steps: int, step_dt: float, seed: int, device: str
    ) -> None:
        self.num_envs = _count("num_envs", num_envs)
        self.num_actions = num_actions
        self.max_episode_length = _count("max_steps", max_steps)
        self.step_dt = step_dt
        self.device = device
        self.cfg: dict[str, Any] = {
            "num_envs": num_envs,
            "max_steps": max_steps,
            "step_dt": step_dt,
            "seed": seed,
        }
        self.episode_length_buf = torch.zeros(self.num_envs, dtype=torch.long, device=device)
        self._random = torch.Generator(device=device)
        self._random.manual_seed(seed)
        self._states = self._new_states(self.num_envs)

    @property
    def unwrapped(self) -> "EpisodeBatch":
        """The environment itself."""
        return self

    def get_observations(self) -> TensorDict:
        """Return the present observations by group."""
        return self._groups(self._states)

    def step(self, actions: Tensor) -> tuple[TensorDict, Tensor, Tensor, dict[str, Any]]:
        """Take one step in every copy.

        Args:
            actions: `[N, num_actions]`.

        Returns:
            Observations by group, rewards `[N]`, dones `[N]` bool, extras.

        Raises:
            EnvironmentContractError: If the actions have another shape.
        """
        wanted = (self.num_envs, self.num_actions)
        if tuple(actions.shape) != wanted:
            raise EnvironmentContractError(f"Actions must be {list(wanted)}, got {list(actions.shape)}.")
        states, rewards, terminated = self._advance(self._states, actions)
        self.episode_length_buf = self.episode_length_buf + 1
        time_outs = (self.episode_length_buf >= self.max_episode_length) & ~terminated
        dones = terminated | time_outs
        final = self._groups(states)
        extras = {"time_outs": time_outs, "final_observation": final}
        if not bool(dones.any()):
            self._states = states
            return final, rewards, dones, extras
        rows = dones.nonzero().squeeze(1)
        self._states = states.index_copy(0, rows, self._new_states(len(rows)))
        self.episode_length_buf[rows] = 0
        return self._groups(self._states), rewards, dones, extras

    def state(self) -> dict[str, np.ndarray]:
        """Return all that the future depends on besides the actions."""
        return {
            "states": self._states.cpu().numpy().copy(),
            "episode_length": self.episode_length_buf.cpu().numpy().copy(),
            "random": self._random.get_state().numpy().copy(),
        }

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        """Go on from what `state` returned."""
        self._states = torch.tensor(state["states"], device=self.device)
        self.episode_length_buf = torch.tensor(state["episode_length"], device=self.device)
        self._random.set_state(torch.tensor(state["random"]))

    @property
    def states(self) -> Tensor:
        """The states of all copies, `[N, S]`; the task says what the columns are."""
        return self._states

    @abstractmethod
    def _new_states(self, count: int) -> Tensor:
        """Draw initial states, `[count, S]`."""

    @abstractmethod
    def _advance(self, states: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the next states `[N, S]`, rewards `[N]` and terminations `[N]` bool."""

    @abstractmethod
    def _observe(self, states: Tensor) -> dict[str, Tensor]:
        """Return the observation groups of states, `[N, ...]` each."""

    def _uniform(self, count: int, low: float, high: float) -> Tensor:
        drawn = torch.rand(count, generator=self._random, device=self.device)
        return low + (high - low) * drawn

    def _groups(self, states: Tensor) -> TensorDict:
        return TensorDict(self._observe(states), batch_size=[len(states)], device=self.device)


def _count(name: str, value: int) -> int:
    count = whole_number(value)
    if count is None or count < 1:
        raise ConfigError(f"{name} must be a whole number, at least 1, got {value!r}.")
    return count
