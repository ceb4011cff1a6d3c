"""Owns how runners that want exactly one batch axis are given any number of leading axes."""

from collections.abc import Mapping
from typing import Any

import numpy as np


def as_rows(
    graph: Mapping[str, Any], inputs: Mapping[str, Any], dtypes: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Lay the leading axes of a graph's inputs out as one.

    Returns:
        The inputs `[N, *shape]` in the dtypes given, and the leading axes.
    """
    first = graph["inputs"][0]
    shape = np.shape(inputs[first["name"]])
    lead = shape[: len(shape) - len(first["shape"])]
    rows = {
        port["name"]: np.asarray(inputs[port["name"]], dtypes[port["name"]]).reshape(-1, *port["shape"])
        for port in graph["inputs"]
    }
    return rows, lead
