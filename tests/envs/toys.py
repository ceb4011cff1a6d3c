"""Small environments whose every number tells which episode and which step it comes from."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from dressage.envs import BaseEnv, Environment
from dressage.envs.spaces import Box, Discrete


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DiaryState:
    identity: jax.Array  # float32, drawn at reset: which episode this is
    steps: jax.Array  # int32


@dataclass(frozen=True)
class Diary(BaseEnv):
    """Observes (identity, step, last action); ends itself after 3 to 6 steps, half the time by truncation."""

    max_steps: int = 5
    shift: float = 0.0  # added to the reward

    def reset(self, rng):
        identity = jax.random.uniform(rng)
        state = DiaryState(identity, jnp.zeros((), jnp.int32))
        return state, jnp.stack([identity, 0.0, 0.0]), {"identity": identity}

    def step(self, state, action):
        steps = state.steps + 1
        over = steps >= 3 + jnp.floor(state.identity * 4).astype(jnp.int32)
        cut = jnp.floor(state.identity * 100) % 2 == 1
        observation = jnp.stack([state.identity, steps.astype(jnp.float32), action])
        info = {"identity": state.identity}
        reward = steps.astype(jnp.float32) + self.shift
        return DiaryState(state.identity, steps), observation, reward, over & ~cut, over & cut, info

    def observation_space(self, state):
        return Box(-np.inf, np.inf, (3,))

    def action_space(self, state):
        return Box(-1.0, 1.0, ())


@dataclass(frozen=True)
class Line(Environment):
    """In parts: walk on the integers from 0, terminate at 3; rewarded with the square of the new place."""

    max_steps: int = 8

    def initial_state(self, rng):
        return {"place": jnp.zeros((), jnp.int32)}

    def transition(self, state, action):
        return {"place": state["place"] + jnp.where(action == 1, 1, -1)}

    def observation(self, state):
        return state["place"].astype(jnp.float32)[None]

    def reward(self, state, action, next_state):
        return (next_state["place"] ** 2).astype(jnp.float32)

    def terminated(self, state):
        return state["place"] >= 3

    def truncated(self, state):
        return state["place"] <= -4

    def info(self, state):
        return {"place": state["place"]}

    def observation_space(self, state):
        return Box(-np.inf, np.inf, (1,))

    def action_space(self, state):
        return Discrete(2)
