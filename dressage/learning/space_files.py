"""Gymnasium spaces as JSON and back, so that a saved policy knows what it was trained in."""

import math
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from dressage.errors import CheckpointError, UnsupportedSpaceError

spaces = gymnasium.spaces


def space_to_json(space: gymnasium.Space[Any]) -> dict[str, Any]:
    """Describe a space by numbers and names.

    Raises:
        UnsupportedSpaceError: If it is of a kind that no policy here supports.
    """
    dtype = str(space.dtype)
    match space:
        case spaces.Box(low=low, high=high, shape=shape):
            return {
                "kind": "Box",
                "shape": list(shape),
                "dtype": dtype,
                "low": _bounds(low),
                "high": _bounds(high),
            }
        case spaces.Discrete(n=n, start=start):
            return {"kind": "Discrete", "n": int(n), "start": int(start), "dtype": dtype}
        case spaces.MultiDiscrete(nvec=nvec, start=start):
            return {"kind": "MultiDiscrete", "nvec": nvec.tolist(), "start": start.tolist(), "dtype": dtype}
        case spaces.MultiBinary(n=n):
            return {
                "kind": "MultiBinary",
                "n": [int(size) for size in n] if isinstance(n, Sequence) else int(n),
            }
        case spaces.Dict(spaces=parts):
            return {"kind": "Dict", "parts": [[name, space_to_json(part)] for name, part in parts.items()]}
        case spaces.Tuple(spaces=parts):
            return {"kind": "Tuple", "parts": [space_to_json(part) for part in parts]}
    raise UnsupportedSpaceError(f"The space {space} cannot be described in a file.")


def space_from_json(described: dict[str, Any]) -> gymnasium.Space[Any]:
    """Make the space that `space_to_json` described.

    Raises:
        CheckpointError: If it describes none.
    """
    match described:
        case {"kind": "Box", "shape": shape, "dtype": dtype, "low": low, "high": high}:
            kind: Any = np.dtype(dtype)
            low, high = (np.broadcast_to(np.asarray(bound, kind), shape).copy() for bound in (low, high))
            return spaces.Box(low, high, tuple(shape), kind)
        case {"kind": "Discrete", "n": n, "start": start, "dtype": dtype}:
            return spaces.Discrete(n, start=start, dtype=np.dtype(dtype).type)
        case {"kind": "MultiDiscrete", "nvec": nvec, "start": start, "dtype": dtype}:
            return spaces.MultiDiscrete(np.array(nvec), dtype=np.dtype(dtype).type, start=np.array(start))
        case {"kind": "MultiBinary", "n": n}:
            return spaces.MultiBinary(n)
        case {"kind": "Dict", "parts": parts}:
            return spaces.Dict([(name, space_from_json(part)) for name, part in parts])
        case {"kind": "Tuple", "parts": parts}:
            return spaces.Tuple([space_from_json(part) for part in parts])
    raise CheckpointError(f"This describes no space: {described!r}.")


def _bounds(bounds: np.ndarray) -> Any:  # noqa: ANN401 (a number, or nested lists of them)
    """One number where all bounds are equal, which those of an image are."""
    flat = np.ravel(bounds)
    uniform = flat.size > 0 and bool(np.all(flat == flat[0]))
    return _spelled(flat[0].item() if uniform else bounds.tolist())


def _spelled(numbers: Any) -> Any:  # noqa: ANN401
    """Write what is not finite as a word, since JSON has no number for it; NumPy reads both."""
    if isinstance(numbers, list):
        return [_spelled(number) for number in numbers]
    return numbers if math.isfinite(numbers) else str(numbers)
