"""Owns the limit report of a run, and what it makes of the exit status."""

from pathlib import Path

from rich.console import Console

from dressage.cli.json_output import print_as_json
from dressage.cli.known_algorithms import algorithm_named
from dressage.cli.measure import load_policy
from dressage.cli.task_names import open_task
from dressage.reporting.run_folder import RunFolder, RunRecord
from dressage.rl.safety import SafetyReport


def judge_run(run: Path, episodes: int, seed: int) -> dict[int, SafetyReport]:
    """Judge the cost limits of every seed's policies, by episodes with sampled actions.

    Args:
        run: The run directory.
        episodes: Episodes for each seed, at least 2.
        seed: Draws initial states and actions.

    Raises:
        ConfigError: If there is no run, it has no policy yet, or it was trained without a limit.
    """
    folder = RunFolder(run)
    record = RunRecord.read(folder)
    algorithm, task = algorithm_named(record.algorithm), open_task(record.task)
    return {
        trained: algorithm.judge(task, load_policy(algorithm, folder, record, trained), episodes, seed)
        for trained in record.seeds
    }


def show_verdicts(reports: dict[int, SafetyReport], *, as_json: bool) -> bool:
    """Print every seed's report; returns whether all limits are kept."""
    kept = all(report.kept for report in reports.values())
    if as_json:
        print_as_json({"kept": kept, "seeds": {seed: report.as_json() for seed, report in reports.items()}})
        return kept
    console = Console()
    for seed, report in reports.items():
        if len(reports) > 1:
            console.print(f"seed {seed}", style="bold", highlight=False)
        console.print(report.text(), markup=False, highlight=False)
    return kept
