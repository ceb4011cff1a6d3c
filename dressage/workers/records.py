"""What a group of workers gives back: NumPy records, one for each group of equal agents.

`A` agents of a group, `B` environment copies, agents first. Rows of agents that are not there hold zeros.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float32]
Flags: TypeAlias = npt.NDArray[np.bool_]
Counts: TypeAlias = npt.NDArray[np.int32]


@dataclass(frozen=True)
class GroupObservation:
    """What the agents of one group act on.

    Attributes:
        features: `[A, B, obs_dim]` float32, flattened.
        alive: `[A, B]` bool, whether the agent can act on it.
        action_mask: `[A, B, sum(nvec)]` bool, True where a discrete choice is legal and where the agent is
            not there; None without masks.
    """

    features: Floats
    alive: Flags
    action_mask: Flags | None = None


HostObservation: TypeAlias = tuple[GroupObservation, ...]
"""One record for each group."""


@dataclass(frozen=True)
class GroupStep:
    """What one step brought the agents of one group; an agent's episode runs from its appearance to its end.

    Attributes:
        observation: What to act on next: the first of the new episode where the copy's ended.
        final_observation: `[A, B, obs_dim]` float32, what the action really led to, before any reset.
        reward: `[A, B]` float32, 0 where the agent could not act.
        cost: `[A, B]` float32, the same of costs; 0 without a cost key.
        terminated: `[A, B]` bool, nothing follows for this agent.
        truncated: `[A, B]` bool, cut: flagged so, or gone from `env.agents` without a flag.
        alive_before: `[A, B]` bool, whether the agent acted in this step. Other rows are no samples.
        final_observation_missing: `[A, B]` bool, the agent left without a flag and without an observation:
            there is nothing to bootstrap from, and this transition must not be learned from.
        episode_return: `[A, B]` float64, undiscounted rewards of the agent's episode, this step included.
        episode_length: `[A, B]` int32, its steps, this one included.
        episode_cost: `[A, B]` float64, its costs, this one included.
        intervened: `[A, B]` bool, whether a shield did something else than the agent proposed; False where
            there is none.
    """

    observation: GroupObservation
    final_observation: Floats
    reward: Floats
    cost: Floats
    terminated: Flags
    truncated: Flags
    alive_before: Flags
    final_observation_missing: Flags
    episode_return: npt.NDArray[np.float64]
    episode_length: Counts
    episode_cost: npt.NDArray[np.float64]
    intervened: Flags

    @property
    def alive(self) -> Flags:
        """`[A, B]` bool, whether the agent acts next."""
        return self.observation.alive

    @property
    def action_mask(self) -> Flags | None:
        """`[A, B, sum(nvec)]` bool, the legal choices of the next step; None without masks."""
        return self.observation.action_mask

    @property
    def ended(self) -> Flags:
        """`[A, B]` bool, whether the agent's episode ended with this step for any reason."""
        return self.terminated | self.truncated


@dataclass(frozen=True)
class HostParallelStep:
    """What one step of all copies brought.

    Attributes:
        groups: One record for each group of agents.
        ended: `[B]` bool, whether the copy's episode ended with this step: no agent was left, and the copy
            was reset within the step.
    """

    groups: tuple[GroupStep, ...]
    ended: Flags
