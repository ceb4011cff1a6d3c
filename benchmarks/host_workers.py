"""What it costs to step host environments through workers, and what worker processes gain.

Environments alone, through workers in this process and through worker processes take turns; medians count. A
second table has an environment that does nothing, so that all the time is the workers' own.

    python benchmarks/host_workers.py [--task NAME] [--copies B] [--workers 1 2] [--save]
"""

import argparse
import itertools
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from gymnasium import spaces
from machine import conditions, save
from pettingzoo import ParallelEnv

from dressage.workers import StepperGroup, make_workers
from dressage.workers.making import env_maker

BLOCK = 100
"""Steps of all copies between two looks at the clock."""


class Idle(ParallelEnv):  # type: ignore[misc]  # PettingZoo says nothing about its types
    """Three agents with 18 numbers to observe and nothing to do."""

    metadata: dict[str, Any] = {"name": "idle"}

    def __init__(self) -> None:
        self.possible_agents = ["agent_0", "agent_1", "agent_2"]
        self.agents: list[str] = []
        self._seen = {agent: np.zeros(18) for agent in self.possible_agents}
        self._rewards = dict.fromkeys(self.possible_agents, 0.0)
        self._flags = dict.fromkeys(self.possible_agents, False)
        self._infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.possible_agents}
        self._spaces = spaces.Box(-1.0, 1.0, (18,)), spaces.Discrete(5)

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        """The same for all."""
        return self._spaces[0]

    def action_space(self, agent: str) -> spaces.Space[Any]:
        """The same for all."""
        return self._spaces[1]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:  # noqa: ANN401
        """Begin."""
        self.agents = list(self.possible_agents)
        return self._seen, self._infos

    def step(self, actions: dict[str, Any]) -> Any:  # noqa: ANN401
        """Do nothing."""
        return self._seen, self._rewards, self._flags, self._flags, self._infos

    def close(self) -> None:
        """Nothing to close."""


class Alone:
    """Environments stepped one after another with random actions, nothing between."""

    def __init__(self, make: Callable[[], Any], copies: int) -> None:
        self._envs = [make() for _ in range(copies)]
        for seed, env in enumerate(self._envs):
            env.reset(seed=seed)
        spare = self._envs[0]
        self._sizes = {agent: int(spare.action_space(agent).n) for agent in spare.possible_agents}
        self._random = np.random.default_rng(0)

    def block(self) -> float:
        """Return environment steps per second."""
        drawn = {
            agent: self._random.integers(size, size=(BLOCK, len(self._envs)))
            for agent, size in self._sizes.items()
        }
        start = time.perf_counter()
        for step, (copy, env) in itertools.product(range(BLOCK), enumerate(self._envs)):
            env.step({agent: drawn[agent][step, copy] for agent in env.agents})
            if not env.agents:
                env.reset()
        return BLOCK * len(self._envs) / (time.perf_counter() - start)


class Through:
    """The same through a group of workers."""

    def __init__(self, make: Callable[[], Any], copies: int, workers: int) -> None:
        self.group: StepperGroup = make_workers(make, copies, num_workers=workers)
        self.group.reset(range(copies))
        self._random = np.random.default_rng(0)

    def block(self) -> float:
        """Return environment steps per second."""
        copies = self.group.num_envs
        drawn = [
            self._random.integers(sum(group.nvec), size=(BLOCK, len(group.agents), copies))
            for group in self.group.layout.groups
        ]
        start = time.perf_counter()
        for step in range(BLOCK):
            self.group.step([actions[step] for actions in drawn])
        return BLOCK * copies / (time.perf_counter() - start)


def measure(make: Callable[[], Any], copies: int, workers: list[int], repeats: int) -> dict[str, Any]:
    """Let all take turns; returns medians and spreads of steps per second by name."""
    ways: dict[str, Any] = {"alone": Alone(make, copies)}
    ways |= {
        f"{number} workers" if number else "inline": Through(make, copies, number) for number in [0, *workers]
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            rates[name].append(way.block())
    for way in ways.values():
        if isinstance(way, Through):
            way.group.close()
    return {
        name: {"median": median(found), "least": min(found), "most": max(found)}
        for name, found in rates.items()
    }


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", default="pettingzoo:mpe2.simple_spread_v3", help="discrete actions only")
    parser.add_argument("--copies", type=int, default=8)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/host_workers.json")
    given = parser.parse_args()
    tables = {}
    for name, make in {given.task: env_maker(given.task), "idle": Idle}.items():
        tables[name] = measure(make, given.copies, given.workers, given.repeats)
        print(f"{name}, {given.copies} copies: environment steps per second, median of {given.repeats}")
        alone = tables[name]["alone"]["median"]
        for way, rate in tables[name].items():
            per_step, share = 1e6 / rate["median"], rate["median"] / alone
            print(f"  {way:10} {rate['median']:10,.0f}  {share:5.2f} of alone  {per_step:7.1f} us")
    if given.save:
        save("host_workers", {"conditions": conditions(), "copies": given.copies, "tables": tables})


if __name__ == "__main__":
    main()
