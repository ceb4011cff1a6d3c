"""Small environments of many agents that do on command whatever a `ParallelEnv` may do."""

import os
import time

import gymnasium
import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

AGENTS = ("a", "b")


class Scripted(ParallelEnv):
    """Plays scripts: each is one episode, a list of what every step returns.

    The first entry of an episode says what `reset` gives: `{agent: observation}`. Every further entry is a
    dict of `obs`, `reward`, `term`, `trunc` (dicts by agent; flags default to False, rewards to 1.0) and
    `agents` (who is listed afterwards). Actions that come in are kept in `sent`.
    """

    metadata = {"name": "scripted"}

    def __init__(self, episodes, agents=AGENTS, observation_spaces=None, action_spaces=None, order=None):
        self.possible_agents = list(agents)
        box = spaces.Box(-np.inf, np.inf, (2,))
        self.observation_spaces = observation_spaces or dict.fromkeys(agents, box)
        self.action_spaces = action_spaces or dict.fromkeys(agents, spaces.Discrete(2))
        self.episodes = episodes
        self.order = order
        self.sent = []
        self.seeds = []
        self.episode = -1

    def observation_space(self, agent):
        return self.observation_spaces[agent]

    def action_space(self, agent):
        return self.action_spaces[agent]

    def reset(self, seed=None, options=None):
        self.seeds.append(seed)
        self.episode = (self.episode + 1) % len(self.episodes)
        self.steps = iter(self.episodes[self.episode])
        first = next(self.steps)
        self.agents = list(first)
        return first, {agent: {} for agent in first}

    def step(self, actions):
        self.sent.append(actions)
        row = next(self.steps)
        acted = list(row["obs"])
        rewards = row.get("reward", dict.fromkeys(acted, 1.0))
        infos = row.get("info", {agent: {} for agent in acted})
        self.agents = list(row["agents"])
        flags = [{**dict.fromkeys(rewards, False), **row.get(name, {})} for name in ("term", "trunc")]
        return row["obs"], rewards, *flags, infos

    def close(self):
        pass


class Counting(ParallelEnv):
    """Two agents whose numbers tell seed, episode and step; episodes last as long as the generator says."""

    metadata = {"name": "counting"}

    def __init__(self, size=3, fault=None):
        self.possible_agents = list(AGENTS)
        self.fault = fault
        self.space = spaces.Box(-np.inf, np.inf, (size,), np.float64)
        self.generator = None

    def observation_space(self, agent):
        return self.space

    def action_space(self, agent):
        return spaces.Discrete(3, start=-1) if agent == "a" else spaces.Box(-1.0, 1.0, (2,), np.float64)

    def reset(self, seed=None, options=None):
        if seed is not None or self.generator is None:
            self.generator = np.random.default_rng(seed)
        self.identity = self.generator.random()
        self.length = int(self.generator.integers(1, 6))
        self.count = 0
        self.agents = list(self.possible_agents)
        return self.observations({}), {agent: {} for agent in self.agents}

    def observations(self, actions):
        drawn = self.generator.random()
        rows = {}
        for index, agent in enumerate(self.agents):
            row = np.full(self.space.shape, self.identity)
            row[0], row[-1] = self.count, drawn + index
            rows[agent] = row
        return rows

    def step(self, actions):
        self.count += 1
        if self.fault is not None:
            self.fault(self)
        for agent, action in actions.items():
            assert self.action_space(agent).contains(action), (agent, action)
        over = self.count >= self.length
        observations = self.observations(actions)
        rewards = {agent: float(np.sum(actions[agent])) + self.identity for agent in self.agents}
        terminations = {agent: over and agent == "a" for agent in self.agents}
        truncations = {agent: over and agent == "b" for agent in self.agents}
        infos = {agent: {"cost": self.count} for agent in self.agents}
        if over:
            self.agents = []
        return observations, rewards, terminations, truncations, infos

    def close(self):
        pass


def exit_at_second_step(env):
    if env.count == 2:
        os._exit(7)


def hang_at_second_step(env):
    if env.count == 2:
        time.sleep(600)


def raise_at_second_step(env):
    if env.count == 2:
        raise KeyError("no such wheel")


class OfProcess(Counting):
    """Tells in its observations in which process and environment it runs."""

    def observations(self, actions):
        import sys

        threads = float(os.environ.get("OMP_NUM_THREADS", "0"))
        row = np.array([os.getpid(), threads, float("jax" in sys.modules)])
        return dict.fromkeys(self.agents, row)


class Exiting(Counting):
    def __init__(self):
        super().__init__(fault=exit_at_second_step)
        self.length = 100

    def reset(self, seed=None, options=None):
        result = super().reset(seed, options)
        self.length = 100
        return result


class Hanging(Exiting):
    def __init__(self):
        super().__init__()
        self.fault = hang_at_second_step


class Raising(Exiting):
    def __init__(self):
        super().__init__()
        self.fault = raise_at_second_step


class BrokenMaker:
    def __call__(self):
        raise FileNotFoundError("track.xml")


def make_pendulum():
    return gymnasium.make("Pendulum-v1")
