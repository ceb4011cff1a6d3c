"""Small environments with costs, for the learners under a limit."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from dressage.envs import MultiAgentEnv
from dressage.envs.spaces import Box, Discrete

PAIR = ("left", "right")


@dataclass(frozen=True)
class Toll(MultiAgentEnv):
    """Two equal agents that are paid 1 for action 1, which costs `price`; `left` leaves after two steps.

    Attributes:
        max_steps: Steps of an episode.
        price: Cost of action 1; NaN from step `spoiled` on.
        key: Where the cost stands in the info.
        spoiled: The step of an episode whose costs are NaN; -1 for none.
        leaves: Whether `left` leaves after two steps.
    """

    max_steps: int = 3
    price: float = 1.0
    key: str = "cost"
    spoiled: int = -1
    leaves: bool = True

    @property
    def possible_agents(self):
        return PAIR

    def reset(self, rng):
        step = jnp.zeros((), jnp.int32)
        return step, dict.fromkeys(PAIR, self._see(step)), {agent: {} for agent in PAIR}

    def step(self, state, actions):
        state = state + 1
        paid = {agent: jnp.asarray(actions[agent], jnp.float32) for agent in PAIR}
        costs = {
            agent: jnp.where(state - 1 == self.spoiled, jnp.nan, self.price * paid[agent]) for agent in PAIR
        }
        gone = {"left": self.leaves & (state == 2), "right": jnp.asarray(False)}
        return (
            state,
            dict.fromkeys(PAIR, self._see(state)),
            paid,
            {agent: jnp.asarray(flag) for agent, flag in gone.items()},
            dict.fromkeys(PAIR, jnp.asarray(False)),
            {agent: {self.key: costs[agent]} for agent in PAIR},
        )

    def alive(self, state):
        return {"left": ~(self.leaves & (state >= 2)), "right": jnp.asarray(True)}

    def observation_space(self, state, agent):
        return Box(0.0, 1.0, (2,))

    def action_space(self, state, agent):
        return Discrete(2)

    def _see(self, step):
        return jax.nn.one_hot(step % 2, 2)
