"""Copies of an environment stepped one by one in a plain Python loop: what `VectorEnv` must equal."""

from functools import partial

import jax
import numpy as np


@partial(jax.jit, static_argnums=0)
def reset(env, key):
    return env.reset(key)[:2]


@partial(jax.jit, static_argnums=0)
def step(env, state, action):
    return env.step(state, action)


class LoopedCopy:
    """One copy: its own key, time limit, statistics and restart."""

    def __init__(self, env, key, fixed_init, offset):
        self.env, self.fixed_init, self.offset = env, fixed_init, offset
        self.later, first = jax.random.split(key)
        self.start = reset(env, first)
        self._begin(self.start)

    def _begin(self, start):
        self.state, self.observation = start
        self.total, self.length = 0.0, 0

    def step(self, action):
        self.state, final, reward, terminated, truncated, info = step(self.env, self.state, action)
        self.total, self.length = self.total + float(reward), self.length + 1
        truncated = bool(truncated) or self.length + self.offset >= self.env.max_steps
        row = {
            "final_observation": np.asarray(final),
            "reward": float(reward),
            "terminated": bool(terminated),
            "truncated": truncated,
            "info": {name: np.asarray(value) for name, value in info.items()},
            "episode_return": self.total,
            "episode_length": self.length,
        }
        self.observation = final
        if terminated or truncated:
            self.offset = 0
            if not self.fixed_init:
                self.later, key = jax.random.split(self.later)
                self.start = reset(self.env, key)
            self._begin(self.start)
        return {**row, "observation": np.asarray(self.observation)}


def run_loop(env, key, actions, *, fixed_init, offset_step):
    """Return rows of all copies stacked to `[T, B, ...]`, and the first observations `[B, ...]`."""
    copies = actions.shape[1]
    keys = jax.random.split(key, copies)
    offsets = [b * env.max_steps // copies if offset_step else 0 for b in range(copies)]
    loops = [LoopedCopy(env, k, fixed_init, offset) for k, offset in zip(keys, offsets, strict=True)]
    first = np.stack([np.asarray(loop.observation) for loop in loops])
    rows = [[loop.step(action) for loop, action in zip(loops, row, strict=True)] for row in actions]
    by_step = [jax.tree.map(lambda *leaves: np.stack(leaves), *row) for row in rows]
    return first, jax.tree.map(lambda *leaves: np.stack(leaves), *by_step)
