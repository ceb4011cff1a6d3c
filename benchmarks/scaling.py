"""Measure steps a second against the number of environments and of seeds trained at once.

Every size is compiled and run in a process of its own, so that its peak memory is its own too. The
amount of work is kept about equal, so that small sizes are not all overhead. Results go to
benchmarks/results/scaling.json and the two pictures to docs/images.

    python benchmarks/scaling.py --repeats 3
    python benchmarks/scaling.py --plot       # draw again from the last result
"""

import argparse
import json
from pathlib import Path
from statistics import median
from typing import Any

from figures import IMAGES, axes, save_figure
from machine import RESULTS, conditions, save
from rows import dressage
from workers import Worker

ENVIRONMENTS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
SEEDS = (1, 2, 4, 8, 16, 32, 64)
TASKS = ("cartpole", "pendulum")
MINIBATCH = 2048  # Samples, where that makes at least four minibatches a rollout.
Record = dict[str, Any]


def config_for_environments(envs: int) -> Record:
    """Return a configuration of so many environments: 64 steps a rollout, 4 epochs, equal minibatches."""
    steps = 64
    return {
        "NUM_ENVS": envs,
        "NUM_STEPS": steps,
        "NUM_MINIBATCHES": max(4, envs * steps // MINIBATCH),
        "TOTAL_TIMESTEPS": max(262_144, 2 * envs * steps),
        "NUM_EVAL_ENVS": 0,
        "EVAL_FREQ": 1,
    }


def config_for_seeds(seeds: int) -> Record:
    """Return the default configuration with fewer steps for each of many seeds."""
    return {"TOTAL_TIMESTEPS": max(16_384, 524_288 // seeds), "NUM_EVAL_ENVS": 0, "EVAL_FREQ": 1}


def measure(task: str, config: Record, seeds: int, repeats: int) -> Record:
    """Run one size; the first of the runs only warms up."""
    competitor = dressage(task, config)
    with Worker(competitor.script, competitor.environment, competitor.settings | {"seeds": seeds}) as worker:
        runs = [worker.run(seed) for seed in range(repeats + 1)][1:]
        memory = worker.stop()["peak_memory_mib"]
    rates = [run["steps"] / run["seconds"] for run in runs]
    return {
        "median": median(rates),
        "smallest": min(rates),
        "largest": max(rates),
        "peak_memory_mib": memory,
        "compile_seconds": worker.prepared["compile_seconds"],
    }


def curves(repeats: int, stride: int = 1) -> Record:
    """Measure both curves of every task, at every `stride`-th size."""
    record: Record = {"before": conditions(), "repeats": repeats, "environments": {}, "seeds": {}}
    for task in TASKS:
        points = record["environments"][task] = {}
        for envs in ENVIRONMENTS[::stride]:
            points[envs] = _told(
                f"{task}, {envs} environments", measure(task, config_for_environments(envs), 1, repeats)
            )
        points = record["seeds"][task] = {}
        for seeds in SEEDS[::stride]:
            points[seeds] = _told(
                f"{task}, {seeds} seeds", measure(task, config_for_seeds(seeds), seeds, repeats)
            )
    return record | {"after": conditions()}


def _told(what: str, point: Record) -> Record:
    print(f"{what:32} {point['median']:12,.0f} steps/s {point['peak_memory_mib']:7.0f} MiB", flush=True)
    return point


def plot(record: Record) -> list[Path]:
    """Draw the two curves with the spread of the repeats."""
    labels = {"environments": "environments stepped at once", "seeds": "seeds trained at once (vmap)"}
    paths = []
    for kind, label in labels.items():
        figure, panel = axes(label, "environment steps a second, all together")
        for task, points in record[kind].items():
            sizes = [int(size) for size in points]
            panel.plot(sizes, [point["median"] for point in points.values()], marker="o", label=task)
            low, high = ([point[edge] for point in points.values()] for edge in ("smallest", "largest"))
            panel.fill_between(sizes, low, high, alpha=0.2)
        panel.set_xscale("log", base=2)
        panel.set_xticks(sizes, [f"{size:,}" for size in sizes])
        panel.set_ylim(bottom=0)
        panel.legend()
        now = record["before"]
        when = f"{now['time'][:10]}, {now['processor']}, {now['cores']} cores"
        panel.set_title(f"{when}, load average {now['load_average'][0]:g} before", fontsize=8)
        paths.append(save_figure(figure, IMAGES / f"bench_{kind}.png"))
    return paths


def main() -> None:
    """Measure and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=3, help="runs that count at every size (default 3)")
    parser.add_argument("--quick", action="store_true", help="every third size, one run of each")
    parser.add_argument("--plot", action="store_true", help="only draw, from the last result")
    arguments = parser.parse_args()
    if arguments.plot:
        record = json.loads((RESULTS / "scaling.json").read_text())
    else:
        record = curves(1, stride=3) if arguments.quick else curves(arguments.repeats)
        print(f"written to {save('scaling', record)}")
    for path in plot(record):
        print(f"drawn to {path}")


if __name__ == "__main__":
    main()
