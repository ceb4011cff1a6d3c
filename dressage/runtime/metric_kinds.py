"""Says what becomes of a metric where one row holds several updates: every metric has a declared kind."""

from collections.abc import Iterable, Mapping
from dataclasses import fields

import numpy as np

from dressage.policy.base_policy import MetricKind
from dressage.runtime.accounts import EPISODES, STAGES, Counters

Row = Mapping[str, float]

KINDS: Mapping[str, MetricKind] = {
    **dict.fromkeys((f"runtime/{field.name}" for field in fields(Counters)), "counter"),
    **dict.fromkeys((f"time/{stage}_s" for stage in (*STAGES, "update")), "mean"),
    "steps_per_second": "mean",
    "runtime/lag_mean": "mean",
    "runtime/lag_max": "peak",
    EPISODES: "count",
    "rollout/episode_return": "episode mean",
    "rollout/episode_length": "episode mean",
}
"""Kinds of all metrics that the engine itself gives; a policy declares its own as `metric_kinds`."""


def summarize_updates(rows: Iterable[Row], kinds: Mapping[str, MetricKind]) -> dict[str, float]:
    """Make one row of the metrics of several updates.

    Args:
        rows: Metrics of each update, in order; not every update needs to have all of them.
        kinds: By name. A metric without a kind is a mean: losses of algorithms that nobody here knows.

    Returns:
        For a `counter` its last value, for a `count` the sum, for a `peak` the largest, for a `mean` the mean
        over the updates that have it, for an `episode mean` that over the episodes of all updates.
    """
    given = list(rows)
    names = sorted({name for row in given for name in row})
    return {name: _joined([row for row in given if name in row], name, kinds.get(name)) for name in names}


def _joined(rows: list[Row], name: str, kind: MetricKind | None) -> float:
    values = np.array([row[name] for row in rows], dtype=np.float64)
    match kind:
        case "counter":
            return float(values[-1])
        case "count":
            return float(values.sum())
        case "peak":
            return float(values.max())
        case "episode mean":
            return float(np.average(values, weights=[row[EPISODES] for row in rows]))
        case _:
            return float(values.mean())
