"""Small environments of many agents without chance, whose every number can be told by hand."""

import importlib
import warnings
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from dressage.envs import MultiAgentEnv
from dressage.envs.spaces import Box, Discrete

AGENTS = ("a", "b")
SMALL = {
    "num_envs": 2,
    "rollout_length": 4,
    "learning_epochs": 2,
    "mini_batches": 2,
    "network": {"hidden_sizes": (4,)},
}
"""Options that most tests train with, so that they share compiled programs."""


def parallel_env(module, options):
    """Make another package's environment; what it says of deprecations is no matter of these tests."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module(module).parallel_env(**options)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RelayState:
    steps: jax.Array  # int32
    spoiled: jax.Array  # int32, which of FIELDS is spoiled; -1 for none
    spoiled_at: jax.Array  # int32, in which step of the episode, from 1


FIELDS = ("observation", "reward", "cost")


@dataclass(frozen=True)
class Relay(MultiAgentEnv):
    """Two equal agents, no chance: `a` terminates at step `leaves`, `b` is truncated at the fifth.

    Each step pays `a` 10 less half its action and `b` the number of the step; it costs both the number of the
    step. Both see how far the episode is, their own last action, and who they are.
    """

    max_steps: int = 5
    leaves: int = 2

    @property
    def possible_agents(self):
        return AGENTS

    def reset(self, rng):
        state = RelayState(jnp.zeros((), jnp.int32), jnp.full((), -1, jnp.int32), jnp.zeros((), jnp.int32))
        idle = dict.fromkeys(AGENTS, jnp.zeros(()))
        return state, self._observe(state, idle), {agent: {"cost": jnp.zeros(())} for agent in AGENTS}

    def step(self, state, actions):
        steps = state.steps + 1
        number = steps.astype(jnp.float32)
        now = steps == state.spoiled_at
        bad = [jnp.where(now & (state.spoiled == field), jnp.nan, 0.0) for field in range(len(FIELDS))]
        following = RelayState(steps, state.spoiled, state.spoiled_at)
        observations = self._observe(following, actions)
        observations["b"] = observations["b"] + bad[0]
        rewards = {"a": 10 - 0.5 * actions["a"], "b": number + bad[1]}
        over = {"a": steps >= self.leaves, "b": jnp.asarray(False)}
        costs = {"a": number, "b": number + bad[2]}
        infos = {agent: {"cost": costs[agent]} for agent in AGENTS}
        return following, observations, rewards, over, dict.fromkeys(AGENTS, jnp.asarray(False)), infos

    def observation_space(self, state, agent):
        return Box(-10.0, 10.0, (3,))

    def action_space(self, state, agent):
        return Discrete(3, start=-1)

    def _observe(self, state, actions):
        progress = state.steps.astype(jnp.float32) / 5
        return {
            agent: jnp.stack([progress, jnp.asarray(actions[agent], jnp.float32), jnp.float32(agent == "a")])
            for agent in AGENTS
        }


class Script(ParallelEnv):
    """One episode after the other from a list of rows; what it is sent and seeded with is kept.

    A row says who is listed after the step (`agents`), and whose flags are set (`term`, `trunc`). Whoever
    acts or is listed is spoken of in all dicts, unless `silent` names it; every step pays 1 and costs 2. All
    see how many steps the episode has, and their own place.
    """

    metadata = {"name": "script"}

    def __init__(self, rows, agents=AGENTS, order=1, observation_spaces=None, action_spaces=None):
        self.possible_agents = list(agents)
        self.rows = rows
        self.order = order
        box = spaces.Box(-np.inf, np.inf, (2,))
        self.observation_spaces = observation_spaces or {agent: box for agent in agents}
        self.action_spaces = action_spaces or {agent: spaces.Discrete(2) for agent in agents}
        self.sent, self.resets = [], 0

    def observation_space(self, agent):
        return self.observation_spaces[agent]

    def action_space(self, agent):
        return self.action_spaces[agent]

    def reset(self, seed=None, options=None):
        self.resets += 1
        self.count = 0
        self.agents = self._ordered(self.rows[0]["agents"])
        return {agent: self.observe(agent) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions):
        self.sent.append(actions)
        self.count += 1
        row = self.rows[self.count]
        acted = list(self.agents)
        self.agents = self._ordered(row["agents"])
        spoken = [agent for agent in self._ordered(self.possible_agents) if agent in {*acted, *self.agents}]
        spoken = [agent for agent in spoken if agent not in row.get("silent", ())]
        flags = [
            {agent: agent in row.get(name, ()) for agent in spoken} | {"__all__": False}
            for name in ("term", "trunc")
        ]
        return (
            {agent: self.observe(agent) for agent in spoken},
            {agent: self.reward(agent, actions) for agent in spoken} | {"__all__": 7.0},
            *flags,
            {agent: {"cost": 2.0} for agent in spoken},
        )

    def observe(self, agent):
        return np.array([self.count, self.possible_agents.index(agent)], np.float32)

    def reward(self, agent, actions):
        return 1.0

    def close(self):
        pass

    def _ordered(self, agents):
        return list(agents)[:: self.order]


def leaves_of(tree):
    """Return all numbers of a tree as arrays, random keys as what they are made of."""
    return [_numbers(leaf) for leaf in jax.tree.leaves(tree)]


def _numbers(leaf):
    is_key = isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)


def assert_equal(ours, theirs):
    """Assert that two trees hold the same numbers, bit for bit."""
    mine, others = leaves_of(ours), leaves_of(theirs)
    assert len(mine) == len(others)
    for one, other in zip(mine, others, strict=True):
        np.testing.assert_array_equal(one, other)


def largest_difference(ours, theirs):
    """Return how far apart two trees of numbers are."""
    mine, others = ([leaf.astype(float) for leaf in leaves_of(tree)] for tree in (ours, theirs))
    return max(float(np.max(np.abs(one - other), initial=0)) for one, other in zip(mine, others, strict=True))
