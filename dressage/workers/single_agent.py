"""A Gymnasium environment with the face of a `ParallelEnv` of one agent, so that workers step both."""

from typing import Any

import gymnasium
from pettingzoo import ParallelEnv

AGENT = "agent"
"""The name of the only agent."""


class SingleAgentParallelEnv(ParallelEnv):  # type: ignore[misc]  # PettingZoo says nothing about its types
    """A Gymnasium environment as a `ParallelEnv` of one agent called `agent`.

    Args:
        env: The environment.
    """

    def __init__(self, env: "gymnasium.Env[Any, Any]") -> None:
        self.env = env
        self.metadata = env.metadata
        self.possible_agents = [AGENT]
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> "gymnasium.Space[Any]":
        """Return the environment's observation space."""
        return self.env.observation_space

    def action_space(self, agent: str) -> "gymnasium.Space[Any]":
        """Return the environment's action space."""
        return self.env.action_space

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Start an episode; see `gymnasium.Env.reset`."""
        observation, info = self.env.reset(seed=seed, options=options)
        self.agents = [AGENT]
        return {AGENT: observation}, {AGENT: info}

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]]:
        """Make one step; see `gymnasium.Env.step`."""
        observation, reward, terminated, truncated, info = self.env.step(actions[AGENT])
        if terminated or truncated:
            self.agents = []
        return (
            {AGENT: observation},
            {AGENT: reward},
            {AGENT: bool(terminated)},
            {AGENT: bool(truncated)},
            {AGENT: info},
        )

    def close(self) -> None:
        """Close the environment."""
        self.env.close()
