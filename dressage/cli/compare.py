"""Owns drawing the curves of several runs into one figure."""

from collections.abc import Sequence
from pathlib import Path

from dressage.errors import ConfigError
from dressage.reporting.metric_rows import read_rows
from dressage.reporting.plots import Curve, learning_curve, write_learning_curves
from dressage.reporting.run_folder import RunFolder, RunRecord


def draw_runs(runs: Sequence[Path], output: Path | None, title: str | None) -> Path:
    """Draw learning curves with their spread.

    Args:
        runs: Run directories.
        output: Where the picture goes; None for the run directory, or the working directory for several runs.
        title: Title of the figure; None for the task, if it is one.

    Returns:
        Where the picture is.

    Raises:
        ConfigError: If a folder holds no run or a run has no metrics yet.
    """
    folders = [RunFolder(run) for run in runs]
    records = [RunRecord.read(folder) for folder in folders]
    curves = [_curve(folder) for folder in folders]
    tasks = {record.task for record in records}
    shown = title if title is not None else ", ".join(sorted(tasks))
    path = output or (folders[0].curve if len(folders) == 1 else Path("learning_curves.png"))
    if path.suffix.lower() != ".png":
        raise ConfigError(f"A plot ends in .png; {path} does not.")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_learning_curves(path, curves, shown)
    return path


def _curve(folder: RunFolder) -> Curve:
    rows = read_rows(folder.metrics)
    if not rows:
        raise ConfigError(f"{folder.path} has no metrics yet.")
    return learning_curve(folder.path.name, rows)
