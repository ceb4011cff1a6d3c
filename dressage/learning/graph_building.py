"""How observations, networks and heads of learners become the operations of a `PolicyGraph`."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dressage.equations.action_scaling import UNBOUNDED
from dressage.errors import ConfigError
from dressage.learning.policy_graph import GraphDraft, Port
from dressage.learning.specs import AgentSpec, ObservationLayout

OBSERVATION = "observation"
ACTION = "action"
PROBABILITIES = "probabilities"
STATE = "state"
NORMALIZED = "normalized_observation"


def add_observation(draft: GraphDraft, layout: ObservationLayout, name: str = OBSERVATION) -> str:
    """Take an observation in the environment's own shape and flatten it as `ObservationLayout.flatten` does.

    Returns:
        The name of the flat value `[obs_dim]`.
    """
    if layout.parts:
        flat = [add_observation(draft, part, f"{name}.{key}") for key, part in layout.parts]
        return flat[0] if len(flat) == 1 else draft.add("concat", flat, f"flat_{name}")
    draft.take(Port(name, layout.shape, "int64" if layout.nvec else "float32"))
    count = int(np.prod(layout.shape, dtype=int))
    value = name
    if len(layout.shape) != 1:
        flattening = {"rank": len(layout.shape), "size": count}
        value = draft.add("flatten", [value], f"flat_{name}", flattening)
    if not layout.nvec:
        return value
    columns = [column for column, size in enumerate(layout.nvec) for _ in range(size)]
    pairs = zip(layout.nvec, layout.start, strict=True)
    categories = [start + offset for size, start in pairs for offset in range(size)]
    return draft.add("one_hot", [value], f"one_hot_{name}", {"columns": columns, "categories": categories})


def add_normalization(draft: GraphDraft, value: str, mean: Any, deviation: Any, clip: float) -> str:  # noqa: ANN401
    """Standardise a value by frozen statistics and clip it to ±`clip`."""
    weights = [
        draft.weight(f"{OBSERVATION}/mean", mean),
        draft.weight(f"{OBSERVATION}/deviation", deviation),
    ]
    return draft.add(
        "normalize", [value, *weights], NORMALIZED, {"clip": None if math.isinf(clip) else float(clip)}
    )


def add_perceptron(
    draft: GraphDraft,
    value: str,
    layers: Mapping[str, Mapping[str, Any]],
    activation: str,
    name: str = "actor",
    output: str = "outputs",
) -> str:
    """Stack the dense layers `Dense_0`, `Dense_1`, … of Flax parameters, the last one without activation."""
    count = sum(layer.startswith("Dense_") for layer in layers)
    for index in range(count - 1):
        place = f"{name}/Dense_{index}"
        value = add_dense(draft, value, layers[f"Dense_{index}"], place, f"hidden_{index}", activation)
    return add_dense(draft, value, layers[f"Dense_{count - 1}"], f"{name}/Dense_{count - 1}", output)


def add_recurrent_tower(
    draft: GraphDraft,
    value: str,
    layers: Mapping[str, Mapping[str, Any]],
    activation: str,
    name: str = "actor",
) -> str:
    """Stack dense layers `Dense_0`, …, a gated recurrent unit `cell` and a linear `head`."""
    count = sum(layer.startswith("Dense_") for layer in layers)
    for index in range(count):
        place = f"{name}/Dense_{index}"
        value = add_dense(draft, value, layers[f"Dense_{index}"], place, f"hidden_{index}", activation)
    value = add_gru(draft, value, layers["cell"])
    return add_dense(draft, value, layers["head"], f"{name}/head", "outputs")


def add_dense(
    draft: GraphDraft,
    value: str,
    layer: Mapping[str, Any],
    place: str,
    output: str,
    activation: str | None = None,
) -> str:
    """Add one dense layer, with `kernel [in, out]` and `bias [out]` named by its place."""
    weights = [draft.weight(f"{place}/{part}", layer[part]) for part in ("kernel", "bias")]
    settings = {} if activation is None else {"activation": activation}
    return draft.add("dense", [value, *weights], output, settings)


def add_gru(draft: GraphDraft, value: str, cell: Mapping[str, Any], name: str = "memory") -> str:
    """Add a gated recurrent unit with an explicit state.

    Args:
        draft: The graph.
        value: The cell's input.
        cell: Parameters of `flax.linen.GRUCell`: `ir`, `iz`, `in`, `hr`, `hz`, `hn`.
        name: Name of the weights.

    Returns:
        The name of the new state `[H]`, which is also the cell's output.
    """
    kernels = {gate: np.asarray(part["kernel"]) for gate, part in cell.items()}
    size = kernels["hn"].shape[-1]
    biases = {gate: np.asarray(part.get("bias", np.zeros(size))) for gate, part in cell.items()}
    given, kept = ("ir", "iz", "in"), ("hr", "hz", "hn")
    weights = [
        draft.weight(f"{name}/{what}_{part}", np.concatenate([stored[gate] for gate in gates], -1))
        for what, gates in (("input", given), ("state", kept))
        for part, stored in (("kernel", kernels), ("bias", biases))
    ]
    state = Port(STATE, (size,))
    draft.take(state)
    after = draft.add("gru", [value, state.name, *weights], f"next_{STATE}")
    draft.remember(state, after)
    return after


def add_mask(draft: GraphDraft, shapes: Sequence[tuple[int, ...]], name: str, *, tree: bool) -> str:
    """Take an action mask as the environment gives it: one array, or a tuple of one a component.

    Args:
        draft: The graph.
        shapes: Shape of each part.
        name: Name of the input, such as `observation.action_mask`.
        tree: Whether the parts come as a tuple.

    Returns:
        The name of the flat mask `[sum(nvec)]`.
    """
    flat = []
    for index, shape in enumerate(shapes):
        part = draft.take(Port(f"{name}.{index}" if tree else name, shape, "bool"))
        flattening = {"rank": len(shape), "size": int(np.prod(shape, dtype=int))}
        flat.append(part if len(shape) == 1 else draft.add("flatten", [part], f"flat_{part}", flattening))
    return flat[0] if len(flat) == 1 else draft.add("concat", flat, f"flat_{name}")


def add_head(
    draft: GraphDraft,
    value: str,
    spec: AgentSpec,
    *,
    squash: bool,
    bounds: Any = None,  # noqa: ANN401 (arrays of either library)
    mask: str | None = None,
) -> str:
    """Turn head outputs into the environment's action, as `PolicyHead.environment_action` does with the mode.

    Args:
        draft: The graph.
        value: Head outputs `[action_dim]`, or more, of which the first count.
        spec: The agent's spaces.
        squash: Whether continuous actions are squashed by tanh; otherwise they are clipped.
        bounds: Lower and upper bounds `[2, D]`; None for those of `spec`.
        mask: A flat mask of discrete choices `[sum(nvec)]`, True where one is legal; None for no mask.

    Returns:
        How the action's parts make up one action, for `GraphDraft.finish`.
    """
    if spec.action_kind == "parameterized":
        return _add_parts(draft, value, spec, mask)
    if spec.action_nvec:
        indices = _add_choices(draft, value, spec, mask)
        if spec.action_kind == "multi_discrete":
            stacked = draft.add("stack", indices, f"{ACTION}_components")
            draft.add("reshape", [stacked], ACTION, {"shape": list(spec.action_shape)})
        draft.give(Port(ACTION, spec.action_shape, "int64"))
        _give_probabilities(draft, spec)
        return "array"
    low, high = (spec.action_low, spec.action_high) if bounds is None else bounds
    shaped = len(spec.action_shape) != 1
    bounded = _add_bounds(draft, value, low, high, squash, f"{ACTION}_flat" if shaped else ACTION)
    if shaped:
        draft.add("reshape", [bounded], ACTION, {"shape": list(spec.action_shape)})
    draft.give(Port(ACTION, spec.action_shape))
    return "array"


def _add_bounds(draft: GraphDraft, value: str, low: Any, high: Any, squash: bool, output: str) -> str:  # noqa: ANN401
    """Map numbers to the bounds, by no more operations than they need."""
    low, high = np.asarray(low, np.float32), np.asarray(high, np.float32)
    finite = (low > -UNBOUNDED) & (high < UNBOUNDED)
    if squash and not finite.all():
        raise ConfigError(f"Actions cannot be squashed into the bounds {low} to {high}: not all are finite.")
    if not squash and (low <= -UNBOUNDED).all() and (high >= UNBOUNDED).all():
        return draft.add("identity", [value], output)
    half_width, middle = _half_width_and_middle(low, high, finite)
    scale = [
        draft.weight(f"{ACTION}/half_width", half_width),
        draft.weight(f"{ACTION}/middle", middle),
    ]
    if squash:
        return draft.add("squash", [value, *scale], output)
    limits = [
        draft.weight(f"{ACTION}/least", np.where(finite, -1, low)),
        draft.weight(f"{ACTION}/greatest", np.where(finite, 1, high)),
    ]
    return draft.add("bound", [value, *limits, *scale], output)


def _half_width_and_middle(low: Any, high: Any, finite: Any) -> tuple[Any, Any]:  # noqa: ANN401
    """Return what scales [-1, 1] into the bounds without leaving them by a rounding error."""
    lowest, highest = (np.where(finite, bound, 0).astype(np.float32) for bound in (low, high))
    middle = np.float32(0.5) * lowest + np.float32(0.5) * highest
    half_width = np.minimum(highest - middle, middle - lowest)
    outside = (middle + half_width > highest) | (middle - half_width < lowest)
    half_width = np.where(outside, np.nextafter(half_width, np.float32(0)), half_width)
    return np.where(finite, half_width, np.float32(1)), middle


def _add_choices(draft: GraphDraft, value: str, spec: AgentSpec, mask: str | None) -> list[str]:
    """Add a choice with its probabilities for each discrete component; returns the names of the indices."""
    indices, first, width, choices = [], 0, spec.action_dim, sum(spec.action_nvec)
    if mask is not None:
        all_choices = {"start": 0, "stop": choices}
        logits = draft.add("columns", [value], "all_logits", all_choices) if choices < width else value
        value, width = draft.add("mask", [logits, mask], "legal_logits"), choices
    for component, (size, least) in enumerate(zip(spec.action_nvec, spec.action_start, strict=True)):
        ending = f"_{component}" if len(spec.action_nvec) > 1 else ""
        columns = {"start": first, "stop": first + size}
        logits = value if size == width else draft.add("columns", [value], f"logits{ending}", columns)
        first += size
        made = ACTION if spec.action_kind == "discrete" else f"choice{ending}"
        indices.append(draft.add("choose", [logits], made, {"start": int(least)}))
        draft.add("softmax", [logits], f"{PROBABILITIES}{ending}")
    return indices


def _give_probabilities(draft: GraphDraft, spec: AgentSpec) -> None:
    for component, size in enumerate(spec.action_nvec):
        ending = f"_{component}" if len(spec.action_nvec) > 1 else ""
        draft.give(Port(f"{PROBABILITIES}{ending}", (size,)))


def _add_parts(draft: GraphDraft, value: str, spec: AgentSpec, mask: str | None) -> str:
    """Deal discrete components and raw parameters out to the parts of a Dict or Tuple action."""
    indices = _add_choices(draft, value, spec, mask)
    first = sum(spec.action_nvec)
    for part in spec.action_parts:
        name, whole = f"{ACTION}.{part.name}", "float32" if part.kind == "continuous" else "int64"
        if part.kind == "continuous":
            columns = {"start": first, "stop": first + part.size}
            made, first = draft.add("columns", [value], f"parameters.{part.name}", columns), first + part.size
        else:
            taken, indices = indices[: part.size], indices[part.size :]
            made = draft.add("stack", taken, f"choices.{part.name}")
        draft.add("reshape", [made], name, {"shape": list(part.shape)})
        draft.give(Port(name, part.shape, whole))
    _give_probabilities(draft, spec)
    return "tuple" if all(isinstance(part.name, int) for part in spec.action_parts) else "dict"
