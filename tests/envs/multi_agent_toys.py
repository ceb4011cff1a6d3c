"""Unlike agents whose every number tells which episode and which step it comes from."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from dressage.envs import MultiAgentEnv
from dressage.envs.spaces import Box, Discrete, MultiDiscrete

AGENTS = ("ann", "bob", "cat", "dan")


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CrowdState:
    identity: jax.Array  # float32, drawn at reset: which episode this is
    life: jax.Array  # int32 [4], the step in which each agent's part is over
    steps: jax.Array  # int32


@dataclass(frozen=True)
class Crowd(MultiAgentEnv):
    """Agents that leave after 1 to 6 steps each; the last one appears late.

    `ann` and `bob` are equal, `cat` acts in another space, `dan` observes another one and appears after the
    first step. `ann` terminates, `bob` is truncated, `cat` vanishes without a flag, `dan` terminates.
    """

    max_steps: int = 5
    possible_agents: tuple[str, ...] = AGENTS

    def reset(self, rng):
        first, second = jax.random.split(rng)
        state = CrowdState(
            jax.random.uniform(first), jax.random.randint(second, (4,), 1, 7), jnp.zeros((), jnp.int32)
        )
        return state, self._observations(state, dict.fromkeys(AGENTS, 0.0)), {agent: {} for agent in AGENTS}

    def step(self, state, actions):
        state = CrowdState(state.identity, state.life, state.steps + 1)
        done = state.steps >= state.life
        total = {agent: jnp.sum(actions[agent]).astype(jnp.float32) for agent in AGENTS}
        rewards = {agent: total[agent] + 10 * state.steps + i for i, agent in enumerate(AGENTS)}
        no = jnp.asarray(False)
        terminated = {"ann": done[0], "bob": no, "cat": no, "dan": done[3]}
        truncated = {"ann": no, "bob": done[1], "cat": no, "dan": no}
        infos = {
            agent: {"cost": state.steps.astype(jnp.float32), "name": i} for i, agent in enumerate(AGENTS)
        }
        del infos["bob"]["cost"]
        return state, self._observations(state, total), rewards, terminated, truncated, infos

    def alive(self, state):
        # ann's and bob's flags alone say that they are gone; dan appears late, and not if his part is over.
        return {
            "ann": True,
            "bob": True,
            "cat": state.steps < state.life[2],
            "dan": (state.steps >= 1) & (state.steps < state.life[3]),
        }

    def observation_space(self, state, agent):
        return Box(-np.inf, np.inf, (2 if agent == "dan" else 3,))

    def action_space(self, state, agent):
        return MultiDiscrete([3, 2]) if agent == "cat" else Discrete(4)

    def _observations(self, state, total):
        rows = {
            agent: jnp.stack([state.identity, state.steps.astype(jnp.float32), total[agent]])
            for agent in AGENTS
        }
        return {**rows, "dan": rows["dan"][:2]}
