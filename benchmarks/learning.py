"""Show that PPO learns within its budget: pendulum and CartPole, five seeds trained at once by `vmap`.

The configuration is what the command line uses for the task. After every twentieth of the budget each
seed plays 20 evaluation episodes with its deterministic policy. The goals: pendulum better than -200 on
average within 500,000 steps, CartPole at 500 of 500 within 200,000. Curves go to docs/images, numbers to
benchmarks/results/learning.json.

    python benchmarks/learning.py
    python benchmarks/learning.py --tasks cartpole --seeds 10
"""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from figures import IMAGES, axes, save_figure
from machine import conditions, save

from dressage import envs, ppo
from dressage.cli.presets import SINGLE_AGENT_PPO

Record = dict[str, Any]


@dataclass(frozen=True)
class Goal:
    """What must be learned.

    Attributes:
        steps: The budget in environment steps.
        wanted: The mean return of evaluation episodes that counts as learned.
    """

    steps: int
    wanted: float


GOALS = {"pendulum": Goal(500_000, -200.0), "cartpole": Goal(200_000, 500.0)}
EVALUATIONS = 20


def learn(task: str, seeds: int) -> Record:
    """Train so many seeds of a task at once.

    Returns:
        `steps [P]` at the evaluations, and `returns [K][P]` and `unfinished [K][P]` of every seed.
    """
    goal = GOALS[task]
    given = {"TOTAL_TIMESTEPS": goal.steps, "EVAL_FREQ": EVALUATIONS, "VERBOSE": False}
    settings = {**SINGLE_AGENT_PPO[task], **given}
    config = ppo.Config.from_mapping(settings)
    env = envs.make(task)
    keys = jax.random.split(jax.random.key(0), seeds)
    train = jax.jit(jax.vmap(lambda key: ppo.train(env, config, key).metrics)).lower(keys).compile()
    start = time.perf_counter()
    metrics = jax.block_until_ready(train(keys))
    seconds = time.perf_counter() - start
    returns = np.asarray(metrics["eval/mean_returns"])
    return {
        "config": settings,
        "seconds": seconds,
        "steps": np.asarray(metrics["train/total_steps"])[0].tolist(),
        "returns": returns.tolist(),
        "unfinished": np.asarray(metrics["eval/unfinished_episodes"]).tolist(),
        "final": {"mean": float(returns[:, -1].mean()), "seeds": returns[:, -1].tolist()},
        "wanted": goal.wanted,
        "reached": bool(returns[:, -1].mean() >= goal.wanted),
        "reached_by_every_seed": bool((returns[:, -1] >= goal.wanted).all()),
    }


def plot(task: str, record: Record) -> Path:
    """Draw the mean over seeds, the range between the worst and the best, and every seed thinly."""
    figure, panel = axes("environment steps of each seed", "mean return of 20 evaluation episodes")
    steps, returns = np.array(record["steps"]), np.array(record["returns"])
    panel.plot(steps, returns.T, color="#0072B2", alpha=0.25, linewidth=0.8)
    panel.fill_between(
        steps, returns.min(0), returns.max(0), color="#0072B2", alpha=0.15, label="worst to best seed"
    )
    panel.plot(steps, returns.mean(0), color="#0072B2", linewidth=2, label=f"mean of {len(returns)} seeds")
    panel.axhline(
        record["wanted"], color="#D55E00", linestyle="--", linewidth=1, label=f"goal: {record['wanted']:g}"
    )
    panel.xaxis.set_major_formatter(panel.yaxis.get_major_formatter())
    panel.set_title(f"{task}, as `dressage train {task}` trains it", fontsize=10)
    panel.legend(loc="lower right")
    return save_figure(figure, IMAGES / f"learning_{task}.png")


def main() -> None:
    """Train, print, draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="+", choices=list(GOALS), default=list(GOALS))
    parser.add_argument("--seeds", type=int, default=5)
    arguments = parser.parse_args()
    content: Record = {"conditions": conditions()}
    for task in arguments.tasks:
        record = content[task] = learn(task, arguments.seeds)
        seeds = ", ".join(f"{value:.1f}" for value in record["final"]["seeds"])
        print(f"{task}: {record['final']['mean']:.1f} after {record['steps'][-1]:,} steps (seeds: {seeds})")
        print(f"  wanted {record['wanted']:g}: {'reached' if record['reached'] else 'NOT reached'}", end="")
        print(f"; {arguments.seeds} seeds took {record['seconds']:.1f} s, evaluations included", flush=True)
        print(f"  drawn to {plot(task, record)}")
    print(f"written to {save('learning', content)}")


if __name__ == "__main__":
    main()
