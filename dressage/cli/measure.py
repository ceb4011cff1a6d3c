"""Owns measuring and filming the policies that a run directory holds."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dressage.cli.algorithm import Algorithm, PolicyT
from dressage.cli.json_output import print_as_json
from dressage.cli.known_algorithms import algorithm_named
from dressage.cli.task_names import open_task
from dressage.errors import ConfigError
from dressage.reporting.film import check_film_path, write_film
from dressage.reporting.run_folder import RunFolder, RunRecord
from dressage.reporting.seed_statistics import ReturnSummary, finished_only, summarize_returns
from dressage.reporting.wording import MOST_LIKELY, SAMPLED, describe_number, describe_unfinished


@dataclass(frozen=True)
class Measurement:
    """What a run's policies got on fresh episodes.

    Attributes:
        summary: Of the returns, which are means over the agents where there are several.
        seeds: The seeds that were trained.
        by_agent: Mean return of each of several agents, one number a seed.
        stochastic: Whether actions were sampled; otherwise the most likely ones were taken.
    """

    summary: ReturnSummary
    seeds: tuple[int, ...]
    by_agent: dict[str, list[float]]
    stochastic: bool


def measure_run(run: Path, episodes: int, seed: int, *, stochastic: bool) -> Measurement:
    """Evaluate the policy of every seed of a run on the same initial states.

    Args:
        run: The run directory.
        episodes: Episodes for each seed.
        seed: Draws the initial states.
        stochastic: Sample the actions.

    Raises:
        ConfigError: If there is no run, or it has no policy yet.
    """
    folder = RunFolder(run)
    record = RunRecord.read(folder)
    algorithm, task = algorithm_named(record.algorithm), open_task(record.task)
    rows = []
    by_agent: dict[str, list[float]] = {}
    for trained in record.seeds:
        policy = load_policy(algorithm, folder, record, trained)
        played = algorithm.play(task, policy, episodes, seed, stochastic=stochastic)
        rows.append(finished_only(played.returns, played.finished))
        for agent, returns in played.by_agent.items():
            by_agent.setdefault(agent, []).append(mean_of_finished(returns, played.finished))
    return Measurement(summarize_returns(np.stack(rows)), record.seeds, by_agent, stochastic)


def show_measure(found: Measurement, *, as_json: bool) -> None:
    """Print a measurement as a table, or as one JSON object."""
    summary, seeds = found.summary, found.seeds
    if as_json:
        agents = {"agents": found.by_agent} if found.by_agent else {}
        print_as_json(_described(summary, seeds) | {"stochastic": found.stochastic} | agents)
        return
    console = Console()
    table = Table("trained seed", "mean return", "std over episodes")
    for seed, mean, spread in zip(seeds, summary.seed_means, summary.seed_deviations, strict=True):
        table.add_row(str(seed), describe_number(mean), describe_number(spread))
    console.print(table)
    if found.by_agent:
        each = Table("agent", *(f"seed {seed}" for seed in seeds))
        for agent, means in found.by_agent.items():
            each.add_row(escape(agent), *map(describe_number, means))
        console.print(each)
    actions = SAMPLED if found.stochastic else MOST_LIKELY
    low, high = describe_number(summary.low), describe_number(summary.high)
    headline = f"return {describe_number(summary.estimate)} [{low}, {high}]"
    console.print(f"[bold]{escape(headline)}[/bold]  ({summary.meaning}; {actions})", highlight=False)
    if summary.unfinished:
        console.print(describe_unfinished(summary.unfinished), markup=False, highlight=False)


def film_run(
    run: Path, output: Path | None, seed: int, trained_seed: int | None, episodes: int
) -> tuple[Path | None, str]:
    """Film the median of several episodes of a run's policy.

    Args:
        run: The run directory.
        output: Where the film goes, `.gif` or `.mp4`; None for `rollout.gif` in the run directory.
        seed: Draws the initial states.
        trained_seed: Whose policy acts where several seeds were trained; None for the first.
        episodes: How many to choose from, at least 1.

    Returns:
        Where the film is, None where the task cannot be drawn, and a note.

    Raises:
        ConfigError: If there is no run, no policy, no such seed, or the ending is wrong.
    """
    folder = RunFolder(run)
    record = RunRecord.read(folder)
    path = output or folder.film
    check_film_path(path)
    trained = record.seeds[0] if trained_seed is None else trained_seed
    if trained not in record.seeds:
        known = ", ".join(map(str, record.seeds))
        raise ConfigError(f"{run} has no seed {trained}. It has: {known}.")
    algorithm = algorithm_named(record.algorithm)
    pictures = algorithm.film(record.task, load_policy(algorithm, folder, record, trained), seed, episodes)
    if not pictures.frames:
        return None, pictures.note
    path.parent.mkdir(parents=True, exist_ok=True)
    write_film(path, pictures.frames, pictures.frames_per_second)
    return path, pictures.note


def mean_of_finished(returns: np.ndarray, finished: np.ndarray) -> float:
    """Average the returns `[E]` of the episodes that finished; NaN where none did."""
    kept = returns[finished]
    return float(kept.mean()) if kept.size else math.nan


def load_policy(algorithm: Algorithm[PolicyT], folder: RunFolder, record: RunRecord, seed: int) -> PolicyT:
    """Load the policy of one seed of a run.

    Raises:
        ConfigError: If the run has no policy yet.
        CheckpointError: If its files are damaged.
    """
    place = folder.policy_of(seed, record.seeds)
    check_has_policy(folder, place)
    return algorithm.load_policy(place)


def check_has_policy(folder: RunFolder, place: Path) -> None:
    """Refuse a run that has no policy yet.

    Args:
        folder: The run directory.
        place: The folder of one policy or of all.

    Raises:
        ConfigError: If it is not there.
    """
    if not place.is_dir():
        raise ConfigError(
            f"{folder.path} has no policy yet, since its training never ended. "
            f"Go on with: dressage train --run {folder.path} --resume"
        )


def _described(summary: ReturnSummary, seeds: tuple[int, ...]) -> dict[str, Any]:
    return {
        "return": summary.estimate,
        "low": summary.low,
        "high": summary.high,
        "meaning": summary.meaning,
        "seeds": seeds,
        "seed_means": summary.seed_means,
        "seed_deviations": summary.seed_deviations,
        "episodes": summary.episodes,
        "unfinished": summary.unfinished,
    }
