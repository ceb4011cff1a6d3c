"""Small tasks and settings on which PPO compiles quickly, and ways to look inside a run."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from dressage.envs import BaseEnv
from dressage.envs.spaces import Box, Discrete
from dressage.learning import scan_driver
from dressage.ppo.session import Session

SMALL = {
    "NUM_ENVS": 4,
    "NUM_STEPS": 8,
    "TOTAL_TIMESTEPS": 160,  # 5 updates
    "UPDATE_EPOCHS": 2,
    "NUM_MINIBATCHES": 3,  # 32 samples do not divide by 3
    "NUM_HIDDEN_UNITS": 8,
    "LR": 1e-2,
    "NUM_EVAL_ENVS": 3,
    "EVAL_FREQ": 2,  # after 2 and 5 updates
    "VERBOSE": False,
}


@dataclass(frozen=True)
class Still(BaseEnv):
    """Shows the same observation for ever; rewards 1; the reward of step `broken_at` of an episode is NaN."""

    max_steps: int = 1000
    broken_at: int = -1
    ends_at: int = -1  # terminates there

    def reset(self, rng):
        return jnp.int32(0), jnp.ones(2), {}

    def step(self, state, action):
        reward = jnp.where(state == self.broken_at, jnp.nan, 1.0)
        return state + 1, jnp.ones(2), reward, state + 1 == self.ends_at, jnp.bool_(False), {}

    def observation_space(self, state):
        return Box(-np.inf, np.inf, (2,))

    def action_space(self, state):
        return Discrete(2)


@dataclass(frozen=True)
class Bounds(BaseEnv):
    """Does nothing; its two actions have the bounds given."""

    low: tuple[float, float] = (-1.0, 0.0)
    high: tuple[float, float] = (1.0, np.inf)
    max_steps: int = 3

    def reset(self, rng):
        return jnp.int32(0), jnp.zeros(2), {}

    def step(self, state, action):
        return state + 1, action, action.sum(), jnp.bool_(False), jnp.bool_(False), {}

    def observation_space(self, state):
        return Box(-np.inf, np.inf, (2,))

    def action_space(self, state):
        return Box(np.array(self.low, np.float32), np.array(self.high, np.float32), (2,))


def collect(env, config, seed=0, steps=None):
    """Return session, agent state and the first rollout `[T, B]` that training would learn from."""
    session = Session.of(env, config)
    steps = steps or session.config.NUM_STEPS

    def begin_and_collect(key):
        state = scan_driver.init(session.env, session.groups, key)
        _, noise_keys, _ = scan_driver.update_keys(state.key, 1)
        noise = scan_driver.draw_noise(session.groups, noise_keys, steps, session.env.copies)
        return state.agents[0], scan_driver.collect(session.env, session.groups, state, noise)[2][0]

    agent, rollout = jax.jit(begin_and_collect)(jax.random.key(seed))
    return session, agent, jax.tree.map(np.asarray, rollout)


def experience_of(rollout):
    """Return a rollout as the learner takes it: JAX arrays."""
    return jax.tree.map(jnp.asarray, rollout)


def flat(tree):
    """Lay all numbers of a tree out as one NumPy vector."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def params_of(result):
    """Return a result's parameters as one vector."""
    return flat(result.runner_state.train_state.params)


def row(tree, index):
    """Return one element of a vmapped tree."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def is_key(leaf):
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def assert_same_bits(first, second):
    """Check that two trees have one structure and equal numbers, NaN being equal to NaN."""
    assert jax.tree.structure(first) == jax.tree.structure(second)
    for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        raw = [
            np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)
            for leaf in map(jnp.asarray, (one, other))
        ]
        np.testing.assert_array_equal(raw[0], raw[1])
