"""Hold the learners under a limit against exact optima, and shaped costs against plain ones.

`solve_cmdp` gives the best return under each limit and its multiplier by linear programming. Every learner
trains five seeds at once, then each seed's policy plays 1,000 episodes with sampled actions. A row has means
over the seeds: how much of the optimum was reached, whether the cost kept the limit to two standard errors
of 1,000 episodes, and what the multiplier was on average over the second half of training.

The last part trains CPO and ICPO on `crossing` and counts the violations of training.

    python benchmarks/limits.py
    python benchmarks/limits.py --only shortcut_cmdp --learners CPO
    python benchmarks/limits.py --part shaping
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from machine import save_rows

from dressage import envs
from dressage.envs.suite import solve_cmdp
from dressage.rl.algorithm import Algorithm
from dressage.rl.icpo import CPO, ICPO
from dressage.rl.ippo_lag import IPPO_Lagrangian
from dressage.rl.training import TrainEvent

Record = dict[str, Any]
Learner = type[Algorithm]

EPISODES = 1000
COMMON = {
    "num_envs": 32,
    "rollout_length": 64,
    "gamma": 1.0,
    "cost_gamma": 1.0,
    "learning_rate": 1e-3,
    "network": {"hidden_sizes": (32, 32)},
}
SETTINGS: dict[str, Record] = {
    "IPPO_Lagrangian": COMMON | {"clip_value_loss": False, "anneal_learning_rate": True},
    "CPO": COMMON,
    "ICPO": COMMON,
}
LEARNERS: dict[str, Learner] = {"IPPO_Lagrangian": IPPO_Lagrangian, "CPO": CPO, "ICPO": ICPO}
SHAPINGS: tuple[tuple[str, Record], ...] = (
    ("CPO", {}),
    ("CPO", {"cost_limit": 0.5}),
    ("CPO", {"cost_limit": 0.25}),
    ("ICPO", {}),
    ("ICPO", {"shaping_coef": 0.1}),
    ("CPO", {"target_kl": 0.003}),
    ("CPO", {"num_envs": 128, "steps": 2_457_600}),
)
"""Learners on `crossing`, with what differs from a limit of 1 and the default shaping.

The last two ask why CPO costs more than its limit: shorter steps, and four times the samples in each of as
many updates.
"""
MULTIPLIERS = {"IPPO_Lagrangian": "multiplier", "CPO": "cost_multiplier", "ICPO": "cost_multiplier"}


@dataclass(frozen=True)
class Problem:
    """A task whose optimum under a limit is known.

    Attributes:
        task: Its name.
        limit: What an episode may cost.
        steps: Environment steps of each seed.
        options: The task's options.
        settings: Options of the learners that differ from `SETTINGS`, by learner.
    """

    task: str
    limit: float
    steps: int
    options: Record = field(default_factory=dict)
    settings: dict[str, Record] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The task with its options."""
        options = ", ".join(f"{name} {value:g}" for name, value in self.options.items())
        return f"{self.task}, {options}" if options else self.task


PROBLEMS = (
    Problem("budget_bandit", 2.0, 307_200),
    Problem("budget_bandit", 7.0, 307_200),
    # Both agents correct the same excess at once, so CPO needs a better estimate of it.
    Problem("coupled_budget", 2.5, 409_600, settings={"CPO": {"num_envs": 64}}),
    Problem("shortcut_cmdp", 1.0, 614_400, {"slip": 0.0}),
    Problem("shortcut_cmdp", 0.5, 614_400, {"slip": 0.0}),
    Problem("shortcut_cmdp", 1.0, 614_400, {"slip": 0.1}),
    # Noise in a cost gradient makes its price too low; the rarer the cost, the more samples it takes.
    Problem("shortcut_cmdp", 0.5, 1_638_400, {"slip": 0.1}, {"CPO": {"num_envs": 256}}),
)


def measure(problem: Problem, name: str, seeds: int) -> Record:
    """Train and evaluate one learner on one problem."""
    env = envs.make(problem.task, **problem.options)
    best = solve_cmdp(env, problem.limit, 1.0)
    settings = SETTINGS[name] | problem.settings.get(name, {}) | {"cost_limit": problem.limit}
    learner = LEARNERS[name](settings)
    start = time.perf_counter()
    results = learner.train_seeds(env, problem.steps, list(range(seeds)))
    seconds = time.perf_counter() - start
    played = learner.evaluate(env, EPISODES)
    agents = list(played)
    returns = np.mean([played[agent]["returns"] for agent in agents], axis=0)
    costs = np.mean([played[agent]["costs"] for agent in agents], axis=0)
    prices = [_late_mean(result.metrics[agent], MULTIPLIERS[name]) for result in results for agent in agents]
    return {
        "task": problem.title,
        "learner": name,
        "limit": problem.limit,
        "steps": problem.steps,
        "seconds": seconds,
        "optimum": best.optimum,
        "dual": best.multiplier,
        "returns": returns.mean(axis=1).tolist(),
        "costs": costs.mean(axis=1).tolist(),
        "cost_error": float(costs.std(axis=1, ddof=1).mean() / np.sqrt(EPISODES)),
        "multiplier": float(np.nanmean(prices)),
    }


def recovery(name: str, seeds: int) -> Record:
    """Learn until an episode costs 0.95 of at most 1, then go on under a limit of 0.2."""
    env = envs.make("budget_bandit", max_steps=1)
    limit, steps = 0.2, 614_400
    settings = SETTINGS[name] | {"anneal_learning_rate": False}  # A rate that ends at 0 ends recovery too.
    rows = []
    for seed in range(seeds):
        loose = LEARNERS[name](settings | {"cost_limit": 1.0}, seed=seed)
        before = loose.train(env, steps, callbacks=(_costs_much,))
        outside = loose.evaluate(env, EPISODES)["agent"]["costs"].mean()
        held = LEARNERS[name](settings | {"cost_limit": limit}, seed=seed)
        held.train(env, steps, resume_from=before)
        rows.append((outside, held.evaluate(env, EPISODES)["agent"]["costs"].mean()))
    return {
        "learner": name,
        "limit": limit,
        "steps": steps,
        "before": [float(row[0]) for row in rows],
        "after": [float(row[1]) for row in rows],
    }


def _costs_much(event: TrainEvent) -> bool:
    return event.metrics["agent"]["episode_cost"] >= 0.95


def shaping(name: str, changes: Record, seeds: int, steps: int = 614_400) -> Record:
    """Train on `crossing` and count what training violated; numbers are by seed, over all agents."""
    env = envs.make("crossing", continuous=False)
    settings = {
        "num_envs": 32,
        "rollout_length": 120,
        "learning_rate": 1e-3,
        "cost_limit": 1.0,
        "cost_gamma": 0.99,
        **changes,
    }
    steps = settings.pop("steps", steps)
    learner = LEARNERS[name](settings)
    start = time.perf_counter()
    results = learner.train_seeds(env, steps, list(range(seeds)))
    seconds = time.perf_counter() - start
    played = learner.evaluate(env, EPISODES)
    agents = list(played)
    episodes = [
        [episode["agent_costs"][agent] for episode in result.history for agent in agents]
        for result in results
    ]
    by_update = [[[row["episode_cost"] for row in one.metrics[agent]] for agent in agents] for one in results]
    costs = np.nanmean(by_update, axis=1)  # [seeds, updates]
    told = {option: value for option, value in changes.items() if option not in {"cost_limit", "steps"}}
    return {
        "learner": ", ".join([name, *(f"{option} {value:g}" for option, value in told.items())]),
        "steps": steps,
        "seconds": seconds,
        "limit": settings["cost_limit"],
        "training_cost": [float(np.mean(one)) for one in episodes],
        "late_training_cost": costs[:, costs.shape[1] // 2 :].mean(axis=1).tolist(),
        "training_cost_by_tenth": [float(part.mean()) for part in np.array_split(costs.mean(axis=0), 10)],
        "training_share_above": [float(np.mean(np.array(one) > 1.0)) for one in episodes],
        "returns": np.mean([played[a]["returns"] for a in agents], axis=(0, 2)).tolist(),
        "costs": np.mean([played[a]["costs"] for a in agents], axis=(0, 2)).tolist(),
    }


def limits_table(rows: list[Record]) -> str:
    """Write the rows of `measure` as Markdown."""
    head = "task | learner | limit | return | optimum | cost | kept | multiplier | dual | steps | s"
    lines = [f"| {head} |", "|" + " --- |" * 11]
    for row in rows:
        reached = np.mean(row["returns"]) / row["optimum"]
        kept = np.mean(row["costs"]) <= row["limit"] + 2 * row["cost_error"]
        cells = (
            row["task"],
            row["learner"],
            f"{row['limit']:g}",
            f"{np.mean(row['returns']):.3f} ({reached:.1%})",
            f"{row['optimum']:.3f}",
            f"{np.mean(row['costs']):.3f} ± {row['cost_error']:.3f}",
            "yes" if kept else "no",
            f"{row['multiplier']:.3f}",
            f"{row['dual']:.3f}",
            f"{row['steps']:,}",
            f"{row['seconds']:.0f}",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def shaping_table(rows: list[Record]) -> str:
    """Write the rows of `shaping` as Markdown, each number with its standard deviation over the seeds."""
    head = "learner | limit | cost of training episodes | of the second half | training episodes above 1"
    lines = [f"| {head} | final return | final cost | steps |", "|" + " --- |" * 8]
    for row in rows:
        cells = (
            row["learner"],
            f"{row['limit']:g}",
            _spread(row["training_cost"]),
            _spread(row["late_training_cost"]),
            _spread(100 * np.array(row["training_share_above"])) + " %",
            _spread(row["returns"]),
            _spread(row["costs"]),
            f"{row['steps']:,}",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def recovery_table(rows: list[Record]) -> str:
    """Write the rows of `recovery` as Markdown."""
    lines = ["| learner | limit | cost before | cost after | steps |", "|" + " --- |" * 5]
    for row in rows:
        before, after = np.mean(row["before"]), np.mean(row["after"])
        lines.append(
            f"| {row['learner']} | {row['limit']:g} | {before:.3f} | {after:.3f} | {row['steps']:,} |"
        )
    return "\n".join(lines)


def _spread(by_seed: Sequence[float]) -> str:
    return f"{np.mean(by_seed):.2f} ± {np.std(by_seed, ddof=1):.2f}"


def _late_mean(rows: list[dict[str, float]], name: str) -> float:
    """Mean over the second half of training; updates without a price (recovery) do not count."""
    late = [row[name] for row in rows[len(rows) // 2 :]]
    return float(np.nanmean(late)) if np.isfinite(late).any() else float("nan")


def _collect(
    part: str,
    jobs: list[Callable[[], Record]],
    table: Callable[[list[Record]], str],
    same: tuple[str, ...],
) -> None:
    rows = []
    for job in jobs:
        rows.append(job())
        print(table(rows[-1:]).splitlines()[-1], flush=True)
        save_rows(f"limits_{part}", rows[-1:], same)  # A row takes minutes, and is worth keeping by itself.
    print(f"\n{table(rows)}\n")


def main() -> None:
    """Measure, print the tables as Markdown, and save each row in `results` as soon as it is there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--part", choices=("optima", "recovery", "shaping"), default=None)
    parser.add_argument("--only", default="", help="part of a task's name")
    parser.add_argument("--learners", nargs="+", default=["IPPO_Lagrangian", "CPO"])
    parser.add_argument("--rows", type=int, nargs="+", default=[], help="rows of the shaping part, from 0")
    given = parser.parse_args()
    problems = [problem for problem in PROBLEMS if given.only in problem.title]
    if given.part in (None, "optima"):
        pairs = [(problem, name) for problem in problems for name in given.learners]
        jobs = [lambda p=problem, n=name: measure(p, n, given.seeds) for problem, name in pairs]
        _collect("optima", jobs, limits_table, ("task", "learner", "limit"))
    if given.part in (None, "recovery"):
        jobs = [lambda n=name: recovery(n, given.seeds) for name in given.learners]
        _collect("recovery", jobs, recovery_table, ("learner",))
    if given.part in (None, "shaping"):
        jobs = [
            lambda n=name, c=changes: shaping(n, c, given.seeds)
            for number, (name, changes) in enumerate(SHAPINGS)
            if not given.rows or number in given.rows
        ]
        _collect("shaping", jobs, shaping_table, ("learner", "limit", "steps"))


if __name__ == "__main__":
    main()
