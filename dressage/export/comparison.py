"""The rule by which a file's outputs count as those of the policy that it was made from."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dressage.export.numpy_policy import PROBABILITIES
from dressage.learning.policy_graph import Arrays

Function = Callable[[Arrays], Arrays]

RELATIVE = 1e-5
OWN_ERRORS = 4.0


def differences(graph: Mapping[str, Any], found: Arrays, live: Arrays, own_error: Arrays) -> list[str]:
    r"""Name every output that differs by more than float32 explains.

    An output is right where $|f - l| \le 10^{-5} \max(1, |l|) + 4 e$: as near to the live policy `l` as one
    part in 10^5, or as four times the live policy's own error `e`; where that is small by luck, its median
    over the rows counts. A discrete choice may differ where both are equally likely within these bounds.

    Args:
        graph: The graph as JSON holds it.
        found: The file's outputs by name, `[N, *shape]`.
        live: The live policy's.
        own_error: How far the live policy itself is off; see `own_errors`.

    Returns:
        One text for each output that is wrong.
    """
    texts = []
    for port in graph["outputs"]:
        name = port["name"]
        if found[name].shape != live[name].shape:
            texts.append(f"{name} has shape {found[name].shape} instead of {live[name].shape}")
        elif port["dtype"] == "float32":
            texts += _compare_numbers(name, found[name], live[name], own_error[name])
    return texts or _compare_choices(graph, found, live, own_error)


def own_errors(outputs: Function, reference: Function, inputs: Arrays, live: Arrays) -> Arrays:
    """Measure a policy's own float32 error, by output and row.

    It is the largest of three distances from the float64 outputs: that of the policy's float32 outputs, and
    those of its outputs on the two nearest float32 observations (each number one step up or down, drawn by
    lot). One of them alone is small by luck too often, an observation being no more exact than that.

    Args:
        outputs: The policy in float32.
        reference: The same policy in float64.
        inputs: By name, `[N, *shape]`.
        live: `outputs(inputs)`.
    """
    exact = reference(inputs)
    tries = [live, *(outputs(near) for near in _neighbours(inputs))]
    names = [name for name in live if live[name].dtype.kind == "f"]
    return {
        name: np.max([np.abs(tried[name] - exact[name]) for tried in tries], axis=0).astype(np.float32)
        for name in names
    }


def allowed(live: Any, own_error: Any) -> Any:  # noqa: ANN401
    """Return by how much numbers `[N, *shape]` may differ from the live ones."""
    typical = np.median(own_error, axis=0, keepdims=True)
    return RELATIVE * np.maximum(1.0, np.abs(live)) + OWN_ERRORS * np.maximum(own_error, typical)


def _neighbours(inputs: Arrays) -> list[Arrays]:
    rng = np.random.default_rng(0)
    up, down = np.float32(np.inf), np.float32(-np.inf)
    lots = {name: rng.integers(0, 2, array.shape) for name, array in inputs.items()}
    return [
        {
            name: np.nextafter(array, np.where(lots[name] == side, up, down))
            if array.dtype.kind == "f"
            else array
            for name, array in inputs.items()
        }
        for side in (0, 1)
    ]


def _compare_numbers(name: str, found: Any, live: Any, own_error: Any) -> list[str]:  # noqa: ANN401
    if not np.isfinite(found).all():
        return [f"{name} is not finite in {int((~np.isfinite(found)).sum())} places"]
    excess = np.abs(found.astype(np.float64) - live) - allowed(live, own_error)
    if excess.size == 0 or excess.max() <= 0:
        return []
    worst = np.unravel_index(np.argmax(excess), excess.shape)
    return [
        f"{name} differs in {int((excess > 0).sum())} of {excess.size} numbers, most in row {worst[0]}: "
        f"{found[worst]:.9g} instead of {live[worst]:.9g}"
    ]


def _compare_choices(graph: Mapping[str, Any], found: Arrays, live: Arrays, own_error: Arrays) -> list[str]:
    names = [port["name"] for port in graph["outputs"] if port["dtype"] == "int64"]
    if not names:
        return []
    chosen, wanted = (
        np.concatenate([outputs[name].reshape(len(outputs[name]), -1) for name in names], axis=1)
        for outputs in (found, live)
    )
    probabilities = [port["name"] for port in graph["outputs"] if port["name"].startswith(PROBABILITIES)]
    wrong = 0
    for component, (name, start) in enumerate(zip(probabilities, graph["start"], strict=True)):
        rows = np.flatnonzero(chosen[:, component] != wanted[:, component])
        if rows.size == 0:
            continue
        likely, bound = live[name][rows].astype(np.float64), allowed(live[name], own_error[name])[rows]
        pair = [likely[np.arange(rows.size), c[rows, component] - start] for c in (chosen, wanted)]
        wrong += int((np.abs(pair[0] - pair[1]) > 2 * bound.max(axis=1)).sum())
    return [f"{wrong} discrete choices differ"] if wrong else []
