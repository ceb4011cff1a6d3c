"""Two agents whose cost is the product of what they take: a limit that only unequal agents use well."""

from dataclasses import dataclass
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from dressage.config import Option
from dressage.envs.cmdp import FiniteCMDP
from dressage.envs.multi_agent import Actions, AgentsReset, AgentsTransition, MultiAgentEnv
from dressage.envs.spaces import Box, Discrete
from dressage.envs.suite.budget_bandit import HORIZON_OPTION, budget_process, observe_step

OPTIONS: tuple[Option, ...] = (HORIZON_OPTION,)

AGENTS = ("agent_0", "agent_1")
LEVELS = {"agent_0": 2, "agent_1": 3}
"""Amounts that each agent can choose from: 0 and 1; 0, 1/2 and 1."""

State: TypeAlias = jax.Array
"""int32, the step that comes next, from 0."""


@dataclass(frozen=True)
class CoupledBudget(MultiAgentEnv):
    """Take much together without both taking much at once.

    At each of `max_steps` steps agent i takes an amount `a_i`: `agent_0` one of 0 and 1, `agent_1` one of 0,
    1/2 and 1. Both are rewarded with `a_0 + a_1` and both pay `a_0 a_1`; each sees which step it is. After
    the last step the episode terminates.

    Agents draw independently, so a step's cost is the product of their mean amounts. Without a limit, both
    taking 1 is best: 2 a step. With a mean cost of at most 1/4 a step, the best means are 1 and 1/4 (either
    way round), 1.25 a step; the best equal ones are 1/2 and 1/2, 1.0 a step.

    Attributes:
        max_steps: Steps of an episode, all of which are played.
    """

    max_steps: int = 10

    @property
    def possible_agents(self) -> tuple[str, ...]:
        """`agent_0` and `agent_1`."""
        return AGENTS

    def reset(self, rng: jax.Array) -> AgentsReset:
        """Start at step 0."""
        state = jnp.zeros((), jnp.int32)
        infos = {agent: {"cost": jnp.zeros(())} for agent in AGENTS}
        return state, dict.fromkeys(AGENTS, observe_step(state, self.max_steps)), infos

    def step(self, state: State, actions: Actions) -> AgentsTransition:
        """Take both amounts; see `MultiAgentEnv.step`."""
        first, second = (jnp.asarray(actions[agent]) / (LEVELS[agent] - 1) for agent in AGENTS)
        state = state + 1
        observation = observe_step(state, self.max_steps)
        return (
            state,
            dict.fromkeys(AGENTS, observation),
            dict.fromkeys(AGENTS, first + second),
            dict.fromkeys(AGENTS, state >= self.max_steps),
            dict.fromkeys(AGENTS, jnp.asarray(False)),
            {agent: {"cost": first * second} for agent in AGENTS},
        )

    def observation_space(self, state: State, agent: str) -> Box:
        """One-hot step, float32 `[max_steps]`; all zeros after the last."""
        return Box(0.0, 1.0, (self.max_steps,))

    def action_space(self, state: State, agent: str) -> Discrete:
        """0 takes nothing, the greatest number takes 1."""
        return Discrete(LEVELS[agent])

    def model(self) -> FiniteCMDP:
        """Return the process over the steps, with the pairs of amounts as actions, `agent_0`'s first.

        Its optimum lets both draw together; whoever is held to 1 leaves it in reach of independent draws.
        """
        first, second = (np.linspace(0, 1, LEVELS[agent]) for agent in AGENTS)
        total, product = np.add.outer(first, second), np.multiply.outer(first, second)
        return budget_process(self.max_steps, rewards=total.ravel(), costs=product.ravel())
