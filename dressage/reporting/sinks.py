"""Owns the places that metric rows go to: a JSONL file always, TensorBoard and Weights & Biases by extra."""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from dressage.errors import MissingExtraError, install_command
from dressage.reporting.metric_rows import Row, encode

PROGRESS_NAMES = frozenset({"kind", "updates", "steps", "time_s"})
"""Entries of a row that place it and are no metric."""


class Sink(Protocol):
    """A place that takes metric rows."""

    def write(self, row: Row) -> None:
        """Take one row; it is safe on disk or handed over when this returns."""

    def close(self) -> None:
        """Finish; no row comes after."""


class JsonLines:
    """Appends rows to `metrics.jsonl`, one strictly valid JSON object a line, flushed at once."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8")

    def write(self, row: Row) -> None:
        """Write one line and hand it to the operating system, so that a killed process loses none."""
        self._file.write(encode(row) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def check_installed(*, tensorboard: bool, wandb: bool) -> None:
    """Refuse sinks whose packages are missing, before a run folder is made for them.

    Args:
        tensorboard: Whether TensorBoard is asked for.
        wandb: Whether Weights & Biases is asked for.

    Raises:
        MissingExtraError: If the package of a sink that is asked for is not installed.
    """
    wanted = ((tensorboard, "TensorBoard", "tensorboard"), (wandb, "Weights & Biases", "wandb"))
    for asked, name, package in wanted:
        if asked and find_spec(package) is None:
            raise MissingExtraError(_missing(name, package))


class TensorBoard:
    """Writes rows as TensorBoard scalars; several seeds become `name/seed-S` curves.

    Args:
        folder: Where the event files go.
        seeds: The seeds of the run.

    Raises:
        MissingExtraError: If tensorboard is not installed.
    """

    def __init__(self, folder: Path, seeds: tuple[int, ...]) -> None:
        try:
            from tensorboard.summary import Writer
        except ImportError as error:
            raise MissingExtraError(_missing("TensorBoard", "tensorboard")) from error
        self._writer = Writer(str(folder))
        self._seeds = seeds

    def write(self, row: Row) -> None:
        """Write every number of the row at its step."""
        for name, value in _scalars(row, self._seeds):
            self._writer.add_scalar(name, value, row["steps"])
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()


class WeightsAndBiases:
    """Sends rows to Weights & Biases.

    Args:
        project: The project's name there.
        folder: The run directory; local files go beneath it.
        config: The options of the run.
        seeds: The seeds of the run.

    Raises:
        MissingExtraError: If wandb is not installed.
    """

    def __init__(self, project: str, folder: Path, config: Mapping[str, Any], seeds: tuple[int, ...]) -> None:
        try:
            import wandb
        except ImportError as error:
            raise MissingExtraError(_missing("Weights & Biases", "wandb")) from error
        # The run's folder is its identity: a resumed run goes on in the same curves.
        self._run = wandb.init(
            project=project, id=folder.name, resume="allow", dir=str(folder), config=dict(config)
        )
        self._seeds = seeds

    def write(self, row: Row) -> None:
        """Log every number of the row at its step."""
        self._run.log(dict(_scalars(row, self._seeds)), step=row["steps"])

    def close(self) -> None:
        """Finish the run there."""
        self._run.finish()


def _scalars(row: Row, seeds: tuple[int, ...]) -> Iterator[tuple[str, float]]:
    if row["kind"] == "event":
        return  # Its numbers, such as a worker's, are no curve.
    for name, value in row.items():
        if name in PROGRESS_NAMES:
            continue
        if isinstance(value, int | float):
            yield name, float(value)
        elif isinstance(value, list) and len(seeds) > 1 and len(value) == len(seeds):
            yield from _seed_scalars(name, value, seeds)


def _seed_scalars(name: str, values: list[Any], seeds: tuple[int, ...]) -> Iterator[tuple[str, float]]:
    for seed, number in zip(seeds, values, strict=True):
        if isinstance(number, int | float):
            yield f"{name}/seed-{seed}", float(number)


def _missing(what: str, package: str) -> str:
    return f"{what} needs the package {package}. Install it with: {install_command('tracking')}"
