"""A task of two agents who are paid by the clock, so that returns and costs of each are known beforehand.

`python:tests.cli.paid_agents:make` is stepped in compiled programs, `pettingzoo:tests.cli.paid_agents` on the
host.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from dressage.envs import MultiAgentEnv, to_parallel_env
from dressage.envs.spaces import Box, Discrete

WAGES = {"low": 1.0, "high": 3.0}
FEES = {"low": 2.0, "high": 0.0}
STEPS = 5
RETURNS = {"low": 5.0, "high": 15.0}
COSTS = {"low": 10.0, "high": 0.0}


@dataclass(frozen=True)
class Paid(MultiAgentEnv):
    """Whatever they do, each step pays and costs each agent what the tables above say."""

    max_steps: int = STEPS

    @property
    def possible_agents(self):
        return tuple(WAGES)

    def reset(self, rng):
        return jnp.zeros(()), self._seen(), {agent: {"cost": jnp.zeros(())} for agent in WAGES}

    def step(self, state, actions):
        over = dict.fromkeys(WAGES, jnp.asarray(False))
        infos = {agent: {"cost": jnp.float32(fee)} for agent, fee in FEES.items()}
        return state + 1, self._seen(), {a: jnp.float32(wage) for a, wage in WAGES.items()}, over, over, infos

    def observation_space(self, state, agent):
        return Box(-1.0, 1.0, (2,))

    def action_space(self, state, agent):
        return Discrete(2)

    def _seen(self) -> dict[str, jax.Array]:
        return {agent: jnp.zeros(2) for agent in WAGES}


def make():
    """Return the task for compiled programs."""
    return Paid()


def parallel_env():
    """Return a copy of it for the host."""
    return to_parallel_env(Paid())
