"""A vector of functional environments as the drivers see it: one record a group of agents."""

from typing import Any

import jax.numpy as jnp
from jax import Array

from dressage.envs.functional import BaseEnv
from dressage.envs.wrappers import VectorEnv
from dressage.learning.records import Observed, Outcome
from dressage.learning.specs import AGENT, AgentSpec, agent_spec, observation_layout


class SingleAgentEnv:
    """`B` copies of a single-agent environment, for one group of one agent.

    Attributes:
        copies: Number of environment copies.
        layout: How its observations are flattened.
        spec: The agent's spaces.
    """

    def __init__(self, env: BaseEnv, copies: int, *, fixed_init: bool, offset_step: bool) -> None:
        self._vector = VectorEnv(env, copies, fixed_init=fixed_init, offset_step=offset_step)
        observation_space = self._vector.observation_space.to_gymnasium()
        self.layout = observation_layout(AGENT, observation_space)
        self.copies = copies
        self.spec: AgentSpec = agent_spec(AGENT, observation_space, self._vector.action_space.to_gymnasium())

    def reset(self, key: Array) -> tuple[Any, tuple[Observed, ...]]:
        """Start every copy; return the environments' state and what the agent sees."""
        state, observation = self._vector.reset(key)
        return state, (self._observed(observation),)

    def step(self, state: Any, actions: tuple[Array, ...]) -> tuple[Any, tuple[Outcome, ...]]:  # noqa: ANN401
        """Step every copy with the environment actions `[B, ...]` of the one group."""
        state, step = self._vector.step(state, actions[0])
        outcome = Outcome(
            observed=self._observed(step.observation),
            final_features=self._observed(step.final_observation).features,
            rewards=jnp.asarray(step.reward, jnp.float32),
            terminated=step.terminated,
            episode_ends=step.terminated | step.truncated,
            episode_returns=step.episode_return,
            episode_lengths=step.episode_length,
            info=step.info,
        )
        return state, (outcome,)

    def _observed(self, observation: Any) -> Observed:  # noqa: ANN401
        return Observed(self.layout.flatten(observation))
