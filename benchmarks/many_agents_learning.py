"""Show that IPPO learns: five seeds on simple_spread, simple_speaker_listener and coupled_budget.

`safe_spread` is trained compiled, all seeds in one program, and its policies then play mpe2's own
`simple_spread_v3`, so that no return is told in a scale of our own. `simple_speaker_listener_v4` is trained
on the host; beside its returns stand those of random actions. `coupled_budget` without a limit has a known
maximum: 2 a step.

    python benchmarks/many_agents_learning.py [--tasks spread speaker budget] [--seeds 5]
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from machine import RESULTS, conditions, save

from dressage import envs
from dressage.cli.presets import IPPO_PRESETS
from dressage.rl.ippo import IPPO
from dressage.rl.policy_set import PolicySet
from dressage.rl.trainer import play_policies
from dressage.workers.making import env_maker

SPREAD, SPEAKER = "pettingzoo:mpe2.simple_spread_v3", "pettingzoo:mpe2.simple_speaker_listener_v4"
EPISODES = 200
BUDGET_HORIZON = 10

Record = dict[str, Any]


def spread(seeds: range) -> Record:
    """Train a million steps of `safe_spread` and play mpe2's `simple_spread_v3`."""
    learner = IPPO({**IPPO_PRESETS["safe_spread"], "history_limit": 1000})
    results = learner.train_seeds(envs.make("safe_spread"), 1_000_000, seeds)
    return {"task": SPREAD, "steps": 1_000_000, **_played(learner, env_maker(SPREAD), results)}


def speaker(seeds: range) -> Record:
    """Train 200,000 steps of `simple_speaker_listener_v4` on the host."""
    learner = IPPO({"num_envs": 16, "rollout_length": 125, "learning_rate": 7e-4})
    make = env_maker(SPEAKER)
    results = learner.train_seeds(make, 200_000, seeds)
    random = [_random_return(make, seed) for seed in seeds]
    return {"task": SPEAKER, "steps": 200_000, "random": random, **_played(learner, make, results)}


def budget(seeds: range) -> Record:
    """Train `coupled_budget`, whose limit nobody watches, towards its maximum."""
    learner = IPPO({"num_envs": 16, "rollout_length": 100, "gamma": 1.0, "learning_rate": 1e-3})
    env = envs.make("coupled_budget", max_steps=BUDGET_HORIZON)
    results = learner.train_seeds(env, 100_000, seeds)
    return {
        "task": "coupled_budget",
        "steps": 100_000,
        "maximum": 2.0 * BUDGET_HORIZON,
        **_played(learner, env, results),
    }


def _played(learner: IPPO, env: Any, results: list[Any]) -> Record:  # noqa: ANN401
    """Play every seed's policies, sampled as in training; returns mean returns an agent by seed."""
    found = []
    for result in results:
        played = play_policies(learner, env, PolicySet.of(result), EPISODES, 10_000, stochastic=True)
        found.append({agent: float(np.mean(row["returns"])) for agent, row in played.items()})
    return {"returns": found, "means": [float(np.mean(list(row.values()))) for row in found]}


def _random_return(make: Callable[[], Any], seed: int) -> float:
    """Return the mean return an agent of random actions."""
    env = make()
    rng = np.random.default_rng(seed)
    totals = []
    for episode in range(EPISODES):
        env.reset(seed=seed * EPISODES + episode)
        total = 0.0
        while env.agents:
            acted = {agent: int(rng.integers(env.action_space(agent).n)) for agent in env.agents}
            _, rewards, *_ = env.step(acted)
            total += float(np.mean(list(rewards.values())))
        totals.append(total)
    env.close()
    return float(np.mean(totals))


TASKS: dict[str, Callable[[range], Record]] = {"spread": spread, "speaker": speaker, "budget": budget}


def main() -> None:
    """Train, tell and keep the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    kept = RESULTS / "many_agents_learning.json"
    tasks: Record = json.loads(kept.read_text())["tasks"] if kept.exists() else {}
    for name in given.tasks:
        start = time.perf_counter()
        tasks[name] = TASKS[name](range(given.seeds)) | {"seconds": time.perf_counter() - start}
        print(name, {key: value for key, value in tasks[name].items() if key != "returns"}, flush=True)
    save("many_agents_learning", {"conditions": conditions(), "tasks": tasks})


if __name__ == "__main__":
    main()
