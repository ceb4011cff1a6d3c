"""Owns measuring and filming the policies that a run directory holds."""

from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dressage.cli.algorithm import Algorithm, PolicyT
from dressage.cli.json_output import print_as_json
from dressage.cli.known_algorithms import algorithm_named
from dressage.envs import make
from dressage.errors import ConfigError
from dressage.reporting.film import check_film_path, write_film
from dressage.reporting.run_folder import RunFolder, RunRecord
from dressage.reporting.seed_statistics import ReturnSummary, finished_only, summarize_returns
from dressage.reporting.wording import describe_number, describe_unfinished


def measure_run(
    run: Path, episodes: int, seed: int, *, stochastic: bool
) -> tuple[ReturnSummary, tuple[int, ...]]:
    """Evaluate the policy of every seed of a run on the same initial states.

    Args:
        run: The run directory.
        episodes: Episodes for each seed.
        seed: Draws the initial states.
        stochastic: Sample the actions.

    Returns:
        The summary, and the seeds that were trained.

    Raises:
        ConfigError: If there is no run, or it has no policy yet.
    """
    folder = RunFolder(run)
    record = RunRecord.read(folder)
    algorithm, task = algorithm_named(record.algorithm), make(record.task)
    rows = []
    for trained in record.seeds:
        policy = load_policy(algorithm, folder, record, trained)
        played = algorithm.play(task, policy, episodes, seed, stochastic=stochastic)
        rows.append(finished_only(played.returns, played.finished))
    return summarize_returns(np.stack(rows)), record.seeds


def show_measure(summary: ReturnSummary, seeds: tuple[int, ...], *, as_json: bool) -> None:
    """Print a measurement as a table, or as one JSON object."""
    if as_json:
        print_as_json(_described(summary, seeds))
        return
    console = Console()
    table = Table("trained seed", "mean return", "std over episodes")
    for seed, mean, spread in zip(seeds, summary.seed_means, summary.seed_deviations, strict=True):
        table.add_row(str(seed), describe_number(mean), describe_number(spread))
    console.print(table)
    low, high = describe_number(summary.low), describe_number(summary.high)
    headline = f"return {describe_number(summary.estimate)} [{low}, {high}]"
    console.print(f"[bold]{escape(headline)}[/bold]  ({summary.meaning})", highlight=False)
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


def load_policy(algorithm: Algorithm[PolicyT], folder: RunFolder, record: RunRecord, seed: int) -> PolicyT:
    """Load the policy of one seed of a run.

    Raises:
        ConfigError: If the run has no policy yet.
        CheckpointError: If its files are damaged.
    """
    place = folder.policy_of(seed, record.seeds)
    if not place.is_dir():
        raise ConfigError(
            f"{folder.path} has no policy yet, since its training never ended. "
            f"Go on with: dressage train --run {folder.path} --resume"
        )
    return algorithm.load_policy(place)


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
