"""The pendulum swing-up in torch, equal to Gymnasium's `Pendulum-v1` step by step."""

import math

import torch
from torch import Tensor

from dressage.policy.torch_envs.episode_batch import EpisodeBatch

GRAVITY, MASS, LENGTH = 10.0, 1.0, 1.0
TIME_STEP, MAX_SPEED, MAX_TORQUE = 0.05, 8.0, 2.0
"""The constants of Gymnasium's task: m/s², kg, m, s, rad/s, N m."""


class Pendulum(EpisodeBatch):
    """Swing a rod up with a motor too weak to lift it, and hold it there.

    With angle `θ` (0 upright), speed `ω` and torque `u`:

        ω' = clip(ω + (3 g / (2 l) sin θ + 3 / (m l²) u) Δt, ±8),   θ' = θ + ω' Δt
        reward = -(θ² + 0.1 ω² + 0.001 u²)

    The observation group `policy` is `(cos θ, sin θ, ω)`, the action the torque in N m, clipped to ±2.
    Episodes end by the time limit alone. Columns of a state: angle (rad, in [-π, π]), speed (rad/s), last
    torque.

    Args:
        num_envs: Number of copies.
        max_steps: Time limit, steps of 0.05 s.
        seed: Draws the initial states: angle in [-π, π], speed in [-1, 1] rad/s.
        device: Where the states live.
        dtype: Type of the states; observations and rewards are float32 anyway.
    """

    def __init__(
        self,
        num_envs: int = 64,
        max_steps: int = 200,
        seed: int = 0,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self._dtype = dtype
        super().__init__(num_envs, 1, max_steps, TIME_STEP, seed, device)

    def _new_states(self, count: int) -> Tensor:
        angle = self._uniform(count, -math.pi, math.pi)
        speed = self._uniform(count, -1.0, 1.0)
        return torch.stack([angle, speed, torch.zeros_like(angle)], dim=1).to(self._dtype)

    def _advance(self, states: Tensor, actions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        angle, speed = states[:, 0], states[:, 1]
        torque = actions[:, 0].to(self._dtype).clamp(-MAX_TORQUE, MAX_TORQUE)
        cost = angle.square() + 0.1 * speed.square() + 0.001 * torque.square()
        push = 3.0 * GRAVITY / (2.0 * LENGTH) * torch.sin(angle) + 3.0 / (MASS * LENGTH**2) * torque
        faster = (speed + push * TIME_STEP).clamp(-MAX_SPEED, MAX_SPEED)
        turned = _wrapped(angle + faster * TIME_STEP)
        terminated = torch.zeros_like(angle, dtype=torch.bool)
        return torch.stack([turned, faster, torque], dim=1), -cost.float(), terminated

    def _observe(self, states: Tensor) -> dict[str, Tensor]:
        angle, speed = states[:, 0], states[:, 1]
        return {"policy": torch.stack([torch.cos(angle), torch.sin(angle), speed], dim=1).float()}


def _wrapped(angle: Tensor) -> Tensor:
    """Return an angle in [-π, π]; Gymnasium's grows and is wrapped in the reward."""
    return torch.remainder(angle + math.pi, 2.0 * math.pi) - math.pi
