"""Observations to try a policy on: ordinary ones, and extremes that no training has shown it."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from dressage.export.numpy_policy import PROBABILITIES
from dressage.learning.policy_graph import Arrays

Numbers = float | np.ndarray

EXTREMES = (1e6, -1e6, 0.0)
FAR = 1000.0
"""Deviations from the mean that lie far outside any normaliser's range."""


def probe_inputs(
    graph: Mapping[str, Any],
    count: int,
    mean: Numbers = 0.0,
    deviation: Numbers = 1.0,
    seed: int = 0,
) -> Arrays:
    """Draw inputs for a graph: two of eight rows ordinary, the others extreme.

    Args:
        graph: The graph as JSON holds it.
        count: Number of rows `N`, at least 8.
        mean: Centre of the observations, `[obs_dim]` or a scalar.
        deviation: Their spread, likewise.
        seed: Draws them.

    Returns:
        By name, `[N, *shape]`.
    """
    rng = np.random.default_rng(seed)
    size = sum(_width(port, graph) for port in graph["inputs"])
    centre, spread = np.broadcast_to(mean, size), np.broadcast_to(deviation, size)
    rows: Arrays = {}
    first, masks = 0, _legal(rng, count, graph)
    for port in graph["inputs"]:
        own = slice(first, first + _width(port, graph))
        first = own.stop
        if port["dtype"] == "int64":
            rows[port["name"]] = rng.integers(-1, 8, (count, *port["shape"]))
        elif port["dtype"] == "bool":
            rows[port["name"]] = masks[:, : _size(port)].reshape(count, *port["shape"])
            masks = masks[:, _size(port) :]
        elif port["name"] in graph["states"]:
            rows[port["name"]] = rng.uniform(-1, 1, (count, *port["shape"])).astype(np.float32)
        else:
            flat = _numbers(rng, count, centre[own], spread[own])
            rows[port["name"]] = flat.reshape(count, *port["shape"]).astype(np.float32)
    return rows


def _numbers(rng: np.random.Generator, count: int, centre: Any, spread: Any) -> Any:  # noqa: ANN401
    """Draw rows of eight sorts in turn: three extremes, far, wide, mixed signs and two as in training."""
    normal = rng.normal(size=(count, len(centre)))
    rows = centre + normal * spread
    signs = np.where(rng.integers(0, 2, rows.shape), 1.0, -1.0)
    for index, extreme in enumerate(EXTREMES):
        rows[index::8] = extreme
    rows[3::8] = (centre + FAR * spread * signs)[3::8]
    rows[4::8] *= 1 + 9 * rng.random(rows[4::8].shape)
    rows[5::8] = (1e6 * signs)[5::8]
    return rows


def _legal(rng: np.random.Generator, count: int, graph: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """Draw masks of all discrete choices, `[N, sum(nvec)]`; each component keeps at least one choice."""
    nvec = [_size(port) for port in graph["outputs"] if port["name"].startswith(PROBABILITIES)]
    parts = [rng.random((count, size)) < 0.6 for size in nvec]
    for part in parts:
        part[np.arange(count), rng.integers(0, part.shape[1], count)] = True
    return np.concatenate([np.ones((count, 0), bool), *parts], axis=1)


def _size(port: Mapping[str, Any]) -> int:
    return int(np.prod(port["shape"], dtype=int))


def _width(port: Mapping[str, Any], graph: Mapping[str, Any]) -> int:
    """Return how many numbers of the flattened observation an input makes: categories count one each."""
    if port["dtype"] == "bool" or port["name"] in graph["states"]:
        return 0
    one_hot = [op for op in graph.get("ops", ()) if op["out"] == f"one_hot_{port['name']}"]
    return len(one_hot[0]["categories"]) if one_hot else _size(port)
