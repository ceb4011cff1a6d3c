"""Owns the look for numbers that are not finite, in arrays of any framework."""

import math
from typing import Any

import numpy as np

Array = Any


def plain(array: Array) -> np.ndarray:
    """Return an array as NumPy's, without a copy where it lies in the processor's memory."""
    return np.asarray(array.cpu() if hasattr(array, "cpu") else array)


def is_finite(array: Array) -> bool:
    """Whether every number is finite; arrays of whole numbers and flags always are."""
    # A finite sum has finite parts; it is an infinite one that needs a second look.
    return not _is_floating(array) or math.isfinite(_sum(array)) or bool(np.isfinite(plain(array)).all())


def holds_nan(array: Array) -> bool:
    """Whether there is a NaN among the numbers."""
    return _is_floating(array) and math.isnan(_sum(array)) and bool(np.isnan(plain(array)).any())


def first_broken(rows: np.ndarray) -> tuple[int, int]:
    """Return step and copy of the first number in `[T, N, ...]` that is not finite; there must be one."""
    broken = ~np.isfinite(rows).reshape(*rows.shape[:2], -1).all(-1)
    step, copy = np.argwhere(broken)[0].tolist()
    return step, copy


def _sum(array: Array) -> float:
    if not isinstance(array, np.ndarray):
        return float(array.sum())
    with np.errstate(over="ignore", invalid="ignore"):  # NumPy alone warns where a sum overflows.
        return float(array.sum())


def _is_floating(array: Array) -> bool:
    ask = getattr(array, "is_floating_point", None)
    return bool(ask()) if ask is not None else array.dtype.kind == "f"
