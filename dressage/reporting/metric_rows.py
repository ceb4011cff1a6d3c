"""Owns the rows of `metrics.jsonl`: what is in one, how it is written, read and cut off.

A row is one JSON object a line, strictly valid: NaN and infinity are written as `null`. Every row has

- `kind`: `"train"` (over the updates since the row before: means, and of what is counted the sum or where the
  count stands), `"eval"` or `"event"`,
- `updates`: updates done, `steps`: environment steps done, both of one seed,
- `time_s`: seconds of training so far, compilation and evaluations included,
- `steps_per_second`: environment steps a second of all seeds together since the row before, `null` in the
  row of the untrained policy,

and then the metrics: numbers where one seed is trained, lists with one number a seed where several are.
`eval/returns`, `eval/lengths` and, where there are costs, `eval/costs` have one entry an evaluation episode,
`null` where it did not finish. Of several agents they are means over the agents (lengths: the longest), and
`eval/returns/AGENT` and `eval/costs/AGENT` have the entries of each. An event has its text as
`event`, and numbers of its own.
"""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from dressage.errors import CheckpointError
from dressage.reporting.seed_statistics import finished_only
from dressage.whole_files import whole_file

Row = dict[str, Any]

PLACE = frozenset({"kind", "updates", "steps", "time_s", "steps_per_second"})
"""What every row has."""

TEXTS = frozenset({"kind", "event"})
"""What is no number."""

COST = "eval/cost_mean"


def train_row(progress: Mapping[str, float], metrics: Mapping[str, np.ndarray]) -> Row:
    """Make a row of training metrics.

    Args:
        progress: `updates`, `steps`, `time_s` and `steps_per_second`.
        metrics: Name to one number a seed, each `[K]`.
    """
    return _row("train", progress, {name: _per_seed(values) for name, values in metrics.items()})


def eval_row(progress: Mapping[str, float], metrics: Mapping[str, np.ndarray]) -> Row:
    """Make a row of an evaluation.

    Args:
        progress: `updates`, `steps`, `time_s` and `steps_per_second`.
        metrics: `eval/returns`, `eval/lengths`, `eval/finished` and what else there is, such as `eval/costs`
            or `eval/returns/AGENT`, each `[K, E]`. All are written, with their averages beside them, as
            `eval/cost_mean` or `eval/return_mean/AGENT`. Episodes that did not finish are left out of the
            averages and written as `null`.
    """
    finished = np.asarray(metrics["eval/finished"], dtype=bool)
    episodes = {
        name: finished_only(values, finished) for name, values in metrics.items() if name != "eval/finished"
    }
    averages = {_average_name(name): _mean(values) for name, values in episodes.items()}
    counts = {
        "eval/return_std": _deviation(episodes["eval/returns"]),
        "eval/episodes": finished.sum(axis=1),
        "eval/unfinished": (~finished).sum(axis=1),
    }
    entries = sorted({**averages, **counts, **episodes}.items())
    return _row("eval", progress, {name: _per_seed(values) for name, values in entries})


def event_row(time_s: float, event: Mapping[str, Any]) -> Row:
    """Make a row of what happened between updates.

    Args:
        time_s: Seconds of training so far.
        event: `updates`, `steps`, the text as `event`, and whole numbers that belong to it.
    """
    rest = {name: value for name, value in event.items() if name not in PLACE}
    return _row("event", {**event, "time_s": time_s, "steps_per_second": math.nan}, rest)


def encode(row: Mapping[str, Any]) -> str:
    """Return a row as one line of strictly valid JSON, with `null` for what is not finite."""
    return json.dumps(jsonable(row), allow_nan=False, separators=(", ", ": "))


def jsonable(value: Any) -> Any:  # noqa: ANN401 (walks any nested value)
    """Turn arrays and numpy numbers into lists and numbers, and what is not finite into None."""
    if isinstance(value, Mapping):
        return {str(name): jsonable(item) for name, item in value.items()}
    if isinstance(value, np.ndarray):
        return jsonable(value.tolist())
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    if isinstance(value, np.generic):
        return jsonable(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def read_rows(path: Path) -> list[Row]:
    """Read the rows of a metrics file; a last line that was cut off by a crash is left out.

    Raises:
        CheckpointError: If any other line is no row.
    """
    if not path.is_file():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    return [_read_row(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]


def keep_until(path: Path, updates: int) -> list[Row]:
    """Cut off the rows of updates that a resumed run will make again, and return those that stay.

    An event goes too where it happened on the way to the next update: its number is of those done by then.

    Args:
        path: The metrics file; need not exist.
        updates: Updates done in the state that training goes on from.

    Raises:
        CheckpointError: If a line is damaged; the file stays as it is.
    """
    kept = [row for row in read_rows(path) if row["updates"] + (row["kind"] == "event") <= updates]
    if path.is_file():
        with whole_file(path) as draft:
            draft.write_text("".join(encode(row) + "\n" for row in kept), encoding="utf-8")
    return kept


def of_kind(rows: Iterable[Row], kind: Literal["train", "eval", "event"]) -> list[Row]:
    """Return the rows of one kind, in order."""
    return [row for row in rows if row["kind"] == kind]


def seed_values(row: Mapping[str, Any], name: str) -> np.ndarray:
    """Return a metric of a row as one number a seed, `[K]` float64, NaN where the row has none."""
    return np.atleast_1d(np.asarray(row.get(name), dtype=np.float64))


def agents_of(row: Mapping[str, Any]) -> list[str]:
    """Return the names of the agents that a row has evaluations of; empty where there is one alone."""
    start = "eval/return_mean/"
    return [name.removeprefix(start) for name in row if name.startswith(start)]


def over_seeds(row: Mapping[str, Any], name: str) -> float:
    """Return the mean of a metric over the seeds that have it; NaN where none has."""
    values = seed_values(row, name)
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else math.nan


def episode_returns(row: Mapping[str, Any]) -> np.ndarray:
    """Return an evaluation's returns, `[K, E]` float64, NaN where the episode did not finish."""
    return episode_values(row, "eval/returns")


def episode_values(row: Mapping[str, Any], name: str) -> np.ndarray:
    """Return what an evaluation wrote of every episode, `[K, E]` float64, NaN where it did not finish."""
    return np.atleast_2d(np.asarray(row[name], dtype=np.float64))


def costs_were_seen(rows: Iterable[Row]) -> bool:
    """Whether an evaluation cost anything: an environment on the host shows only so that it has costs."""
    return any(over_seeds(row, COST) > 0 for row in rows)


def _average_name(name: str) -> str:
    """Turn `eval/returns/AGENT` into `eval/return_mean/AGENT`."""
    group, plural, *agent = name.split("/", 2)
    return "/".join([group, f"{plural.removesuffix('s')}_mean", *agent])


def _read_row(path: Path, number: int, line: bytes) -> Row:
    try:
        row = json.loads(line.decode("utf-8"))
    except ValueError as error:  # No JSON, or no UTF-8.
        raise CheckpointError(_damaged(path, number, str(error))) from error
    flaw = _flaw_of(row) if isinstance(row, dict) else "it is no JSON object"
    if flaw:
        raise CheckpointError(_damaged(path, number, flaw))
    return dict(row)


def _flaw_of(row: Row) -> str:
    needed = PLACE | {"eval/returns"} if row.get("kind") == "eval" else PLACE
    lacking = sorted(needed - row.keys())
    if lacking:
        return f"it has no {lacking[0]}"
    if row["kind"] not in ("train", "eval", "event"):
        return f"its kind is {row['kind']!r}"
    wrong = [name for name, value in row.items() if name not in TEXTS and not _is_numbers(value)]
    return f"{wrong[0]} is no number" if wrong else ""


def _is_numbers(value: Any) -> bool:  # noqa: ANN401 (walks any nested value)
    if isinstance(value, list):
        return all(_is_numbers(item) for item in value)
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _damaged(path: Path, number: int, reason: str) -> str:
    return f"{path} is damaged: line {number} is no row of metrics ({reason}). Remove it to go on without it."


def _row(kind: str, progress: Mapping[str, float], metrics: Mapping[str, Any]) -> Row:
    return {
        "kind": kind,
        "updates": int(progress["updates"]),
        "steps": int(progress["steps"]),
        "time_s": round(float(progress["time_s"]), 3),
        "steps_per_second": jsonable(round(float(progress["steps_per_second"]), 1)),
        **metrics,
    }


def _per_seed(values: np.ndarray) -> Any:  # noqa: ANN401 (one number, or a list of them)
    rows = np.asarray(values)
    return jsonable(rows[0] if len(rows) == 1 else rows)


def _mean(values: np.ndarray) -> np.ndarray:
    # Averaged row by row: numpy warns about a row without a number, and warnings are errors in our tests.
    return np.array([row[~np.isnan(row)].mean() if (~np.isnan(row)).any() else math.nan for row in values])


def _deviation(values: np.ndarray) -> np.ndarray:
    return np.array([row[~np.isnan(row)].std() if (~np.isnan(row)).any() else math.nan for row in values])
