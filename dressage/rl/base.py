"""What all multi-agent learners share: specifications, results, cost tracking and acting policies."""

import dataclasses
from typing import Any

import numpy as np

from dressage.config import merge_configs
from dressage.equations.returns import compute_gae, normalize_advantages
from dressage.equations.schedules import num_optimizer_steps_for_timesteps
from dressage.learning.cost_tracking import RunningEpisode, track_step
from dressage.learning.specs import AgentSpec, agent_spec
from dressage.rl.adapters import PolicyAdapter
from dressage.rl.results import TrainResult
from dressage.workers import without_mask

__all__ = [
    "AgentSpec",
    "EpisodicCostTracker",
    "PolicyAdapter",
    "TrainResult",
    "compute_gae",
    "infer_agent_specs",
    "merge_configs",
    "normalize_advantages",
    "num_optimizer_steps_for_timesteps",
]


@dataclasses.dataclass
class EpisodicCostTracker:
    """Track returns from true episode starts, across rollout boundaries, of one stream of step costs.

    Attributes:
        gamma: Discount a step, in [0, 1].
        initial_return: The estimate while no episode has finished.
        running_return: Discounted cost of the open episode since its true start.
        running_mass: Sum of the weights of the open episode so far.
        discount: Weight of the next cost, a power of `gamma`.
        last_return: Mean return of the episodes finished in the latest rollout that finished any; None
            before.
        last_scale: One over the mean mass of the same episodes: what turns a return into a mean a step.
    """

    gamma: float = 1.0
    initial_return: float = 0.0
    running_return: float = 0.0
    running_mass: float = 0.0
    discount: float = 1.0
    last_return: float | None = None
    last_scale: float = 1.0

    @property
    def estimate(self) -> float:
        """The latest mean return, or `initial_return` while no episode has finished."""
        return self.initial_return if self.last_return is None else self.last_return

    def update(self, costs: Any, episode_ends: Any) -> int:  # noqa: ANN401 (any array of numbers)
        """Add a rollout.

        Args:
            costs: `[T]` costs.
            episode_ends: `[T]` true where an episode ended for any reason, truncation included.

        Returns:
            The number of episodes that the rollout finished.

        Raises:
            ValueError: If the shapes differ or a cost is not finite; nothing is changed then.
        """
        costs, ends = np.asarray(costs, np.float64), np.asarray(episode_ends).astype(bool)
        if costs.ndim != 1 or costs.shape != ends.shape:
            raise ValueError(
                f"costs and episode_ends must be of one shape [T], got {costs.shape} and {ends.shape}."
            )
        if not np.isfinite(costs).all():
            step = int(np.argmin(np.isfinite(costs)))
            raise ValueError(f"The cost of step {step} of the rollout is {costs[step]}, which is not finite.")
        episode = RunningEpisode(self.running_return, self.running_mass, self.discount)
        finished: list[tuple[float, float]] = []
        for cost, ended in zip(costs, ends, strict=True):
            episode, total, mass = track_step(episode, cost, ended, self.gamma, np)
            if ended:
                finished.append((float(total), float(mass)))
        self.running_return, self.running_mass, self.discount = (float(value) for value in episode)
        if finished:
            returns, masses = zip(*finished, strict=True)
            self.last_return = float(np.mean(returns))
            self.last_scale = float(1.0 / np.mean(masses))
        return len(finished)


def infer_agent_specs(env: Any) -> list[AgentSpec]:  # noqa: ANN401 (any PettingZoo ParallelEnv)
    """Describe every possible agent of a `ParallelEnv`, in the order of `possible_agents`.

    Works before `reset`. Where an observation is a Dict with `action_mask`, `obs_dim` counts the rest.

    Raises:
        ValueError: If the environment has no `possible_agents`, or none in it.
        UnsupportedSpaceError: If an agent's space is not supported.
    """
    agents = list(getattr(env, "possible_agents", None) or ())
    if not agents:
        raise ValueError(
            f"{type(env).__name__} has no possible_agents: give it the list of all agents that may ever act."
        )
    return [
        agent_spec(agent, without_mask(env.observation_space(agent)), env.action_space(agent))
        for agent in agents
    ]
