"""A policy's graph as an ONNX model, built by hand: readable names, dynamic batch, one file.

Each operation of the graph becomes the few nodes that compute it; weights keep their names. The file runs in
every onnxruntime since 1.12 (operator set 17).
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dressage.errors import MissingExtraError, install_command
from dressage.learning.policy_files import describe, seal
from dressage.learning.policy_graph import Op, PolicyGraph, Port

OPERATOR_SET = 17
IR_VERSION = 8
BATCH = "batch"
METADATA = "dressage"

_ACTIVATIONS = {
    "tanh": "Tanh",
    "relu": "Relu",
    "elu": "Elu",
    "softplus": "Softplus",
    "sigmoid": "Sigmoid",
}


def to_onnx(graph: PolicyGraph, description: Mapping[str, Any]) -> bytes:
    """Write a graph as an ONNX file.

    Args:
        graph: What the policy computes.
        description: Goes into the model's metadata as JSON, beside the checksum of the file.

    Raises:
        MissingExtraError: If the package `onnx` is not installed.
    """
    onnx = import_onnx()
    model = _Model(graph)
    for op in graph.ops:
        _EMITTERS[op.kind](model, op)
    inputs = [_value_info(onnx, port) for port in graph.inputs]
    outputs = [_value_info(onnx, port) for port in graph.outputs]
    used = {name for node in model.nodes for name in node.input}
    weights = [
        onnx.numpy_helper.from_array(array, name) for name, array in model.weights.items() if name in used
    ]
    body = onnx.helper.make_graph(model.nodes, "policy", inputs, outputs, weights)
    operators = [onnx.helper.make_opsetid("", OPERATOR_SET)]
    made = onnx.helper.make_model(
        body, producer_name="dressage", opset_imports=operators, ir_version=IR_VERSION
    )
    onnx.helper.set_model_props(made, {METADATA: describe(description)})
    return seal(made.SerializeToString(deterministic=True))


def import_onnx() -> Any:  # noqa: ANN401 (a module that need not be installed)
    """Return the package `onnx`.

    Raises:
        MissingExtraError: If it is not installed.
    """
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError(
            f"An ONNX file is written with the package `onnx`: {install_command('onnx')}"
        ) from error
    return onnx


class _Model:
    """Nodes and weights of a model that is being put together."""

    def __init__(self, graph: PolicyGraph) -> None:
        self.nodes: list[Any] = []
        self.weights: dict[str, np.ndarray] = dict(graph.weights)
        self._onnx = import_onnx()

    def node(
        self, kind: str, inputs: list[str], output: str, attributes: Mapping[str, Any] | None = None
    ) -> str:
        """Add a node that is named like its output."""
        made = self._onnx.helper.make_node(kind, inputs, [output], name=output)
        for name, value in (attributes or {}).items():
            made.attribute.append(self._onnx.helper.make_attribute(name, value))
        self.nodes.append(made)
        return output

    def constant(self, name: str, value: Any, dtype: Any = np.float32) -> str:  # noqa: ANN401
        """Add a constant under a name of its own."""
        self.weights[name] = np.asarray(value, dtype)
        return name


def _value_info(onnx: Any, port: Port) -> Any:  # noqa: ANN401
    types = onnx.TensorProto
    kind = {"float32": types.FLOAT, "int64": types.INT64, "bool": types.BOOL}[port.dtype]
    return onnx.helper.make_tensor_value_info(port.name, kind, [BATCH, *port.shape])


def _flatten(model: _Model, op: Op) -> None:
    _reshape_to(model, op, (op.settings["size"],))


def _reshape(model: _Model, op: Op) -> None:
    _reshape_to(model, op, tuple(op.settings["shape"]))


def _reshape_to(model: _Model, op: Op, shape: tuple[int, ...]) -> None:
    whole = model.constant(f"{op.output}/shape", [-1, *shape], np.int64)
    model.node("Reshape", [op.inputs[0], whole], op.output)


def _concat(model: _Model, op: Op) -> None:
    model.node("Concat", list(op.inputs), op.output, {"axis": -1})


def _columns(model: _Model, op: Op) -> None:
    bounds = [
        model.constant(f"{op.output}/{name}", [value], np.int64)
        for name, value in (("start", op.settings["start"]), ("stop", op.settings["stop"]), ("axis", -1))
    ]
    model.node("Slice", [op.inputs[0], *bounds], op.output)


def _one_hot(model: _Model, op: Op) -> None:
    columns = model.constant(f"{op.output}/columns", op.settings["columns"], np.int64)
    categories = model.constant(f"{op.output}/categories", op.settings["categories"], np.int64)
    repeated = model.node("Gather", [op.inputs[0], columns], f"{op.output}/repeated", {"axis": 1})
    equal = model.node("Equal", [repeated, categories], f"{op.output}/equal")
    model.node("Cast", [equal], op.output, {"to": 1})  # TensorProto.FLOAT


def _normalize(model: _Model, op: Op) -> None:
    value, mean, deviation = op.inputs
    centred = model.node("Sub", [value, mean], f"{op.output}/centred")
    clip = op.settings["clip"]
    if clip is None:
        model.node("Div", [centred, deviation], op.output)
        return
    scaled = model.node("Div", [centred, deviation], f"{op.output}/scaled")
    limits = [model.constant(f"{op.output}/{n}", v) for n, v in (("least", -clip), ("greatest", clip))]
    model.node("Clip", [scaled, *limits], op.output)


def _dense(model: _Model, op: Op) -> None:
    activation = op.settings.get("activation")
    if activation is None:
        model.node("Gemm", list(op.inputs), op.output)
        return
    product = model.node("Gemm", list(op.inputs), f"{op.output}/affine")
    _activate(model, activation, product, op.output)


def _activation(model: _Model, op: Op) -> None:
    _activate(model, op.settings["activation"], op.inputs[0], op.output)


def _activate(model: _Model, activation: str, value: str, output: str) -> None:
    if activation == "silu":
        gate = model.node("Sigmoid", [value], f"{output}/gate")
        model.node("Mul", [value, gate], output)
    elif activation == "gelu":
        _gelu(model, value, output)
    else:
        model.node(_ACTIVATIONS[activation], [value], output)


def _gelu(model: _Model, value: str, output: str) -> None:
    """The approximation by tanh, which is Flax's default; the ready-made node came with operator set 20."""
    names = (("cubic", 0.044715), ("scale", math.sqrt(2 / math.pi)), ("one", 1.0), ("half", 0.5))
    cubic, scale, one, half = (model.constant(f"{output}/{name}", number) for name, number in names)
    square = model.node("Mul", [value, value], f"{output}/square")
    cube = model.node("Mul", [square, value], f"{output}/cube")
    small = model.node("Mul", [cube, cubic], f"{output}/small")
    bent = model.node("Add", [value, small], f"{output}/bent")
    scaled = model.node("Mul", [bent, scale], f"{output}/scaled")
    squashed = model.node("Tanh", [scaled], f"{output}/tanh")
    raised = model.node("Add", [squashed, one], f"{output}/raised")
    halved = model.node("Mul", [value, half], f"{output}/halved")
    model.node("Mul", [halved, raised], output)


def _squash(model: _Model, op: Op) -> None:
    value, half_width, middle = op.inputs
    squashed = model.node("Tanh", [value], f"{op.output}/tanh")
    _scale(model, squashed, half_width, middle, op.output)


def _bound(model: _Model, op: Op) -> None:
    value, least, greatest, half_width, middle = op.inputs
    lows, highs = model.weights[least], model.weights[greatest]
    if (lows == lows[0]).all() and (highs == highs[0]).all():
        limits = [model.constant(f"{op.output}/{n}", v[0]) for n, v in (("low", lows), ("high", highs))]
        clipped = model.node("Clip", [value, *limits], f"{op.output}/clipped")
    else:
        raised = model.node("Max", [value, least], f"{op.output}/raised")
        clipped = model.node("Min", [raised, greatest], f"{op.output}/clipped")
    _scale(model, clipped, half_width, middle, op.output)


def _scale(model: _Model, value: str, half_width: str, middle: str, output: str) -> None:
    """Scale the value of the last node, by no node that would change nothing."""
    factors = [
        (kind, name)
        for kind, name, neutral in (("Mul", half_width, 1), ("Add", middle, 0))
        if (model.weights[name] != neutral).any()
    ]
    if not factors:
        model.nodes[-1].output[:] = [output]
    for index, (kind, name) in enumerate(factors):
        made = output if index == len(factors) - 1 else f"{output}/scaled"
        value = model.node(kind, [value, name], made)


def _mask(model: _Model, op: Op) -> None:
    logits, mask = op.inputs
    forbidden = model.constant(f"{op.output}/forbidden", -1e30)
    model.node("Where", [mask, logits, forbidden], op.output)


def _softmax(model: _Model, op: Op) -> None:
    model.node("Softmax", list(op.inputs), op.output, {"axis": -1})


def _choose(model: _Model, op: Op) -> None:
    start, attributes = op.settings["start"], {"axis": -1, "keepdims": 0}
    if start == 0:
        model.node("ArgMax", list(op.inputs), op.output, attributes)
        return
    index = model.node("ArgMax", list(op.inputs), f"{op.output}/index", attributes)
    model.node("Add", [index, model.constant(f"{op.output}/start", start, np.int64)], op.output)


def _stack(model: _Model, op: Op) -> None:
    axis = model.constant(f"{op.output}/axis", [-1], np.int64)
    columns = [model.node("Unsqueeze", [name, axis], f"{op.output}/{name}") for name in op.inputs]
    model.node("Concat", columns, op.output, {"axis": -1})


def _identity(model: _Model, op: Op) -> None:
    model.node("Identity", list(op.inputs), op.output)


def _gru(model: _Model, op: Op) -> None:
    value, state, kernel, bias, state_kernel, state_bias = op.inputs
    size = model.weights[state_bias].shape[0] // 3
    _recurrent(model, (kernel, bias, state_kernel, state_bias), (1, 0, 2))  # r, z, n become z, r, h
    axis = model.constant(f"{op.output}/axis", [0], np.int64)
    sequence = model.node("Unsqueeze", [value, axis], f"{op.output}/sequence")
    initial = model.node("Unsqueeze", [state, axis], f"{op.output}/initial")
    attributes = {"hidden_size": size, "linear_before_reset": 1}
    inputs = [sequence, kernel, state_kernel, bias, "", initial]
    made = model.node("GRU", inputs, f"{op.output}/steps", attributes)
    model.nodes[-1].output[:] = ["", made]  # The last state; the sequence of all of them is not needed.
    model.node("Squeeze", [made, axis], op.output)


def _lstm(model: _Model, op: Op) -> None:
    value, state, kernel, bias, state_kernel, state_bias = op.inputs
    size = model.weights[state_bias].shape[0] // 4
    _recurrent(model, (kernel, bias, state_kernel, state_bias), (0, 3, 1, 2))  # i, f, g, o become i, o, f, c
    axis = model.constant(f"{op.output}/axis", [0], np.int64)
    sequence = model.node("Unsqueeze", [value, axis], f"{op.output}/sequence")
    bounds = {"hidden": (0, size), "cell": (size, 2 * size)}
    halves = []
    for half, (start, stop) in bounds.items():
        name = f"{op.output}/{half}"
        _columns(model, Op("columns", (state,), name, {"start": start, "stop": stop}))
        halves.append(model.node("Unsqueeze", [name, axis], f"{name}_before"))
    inputs = [sequence, kernel, state_kernel, bias, "", *halves]
    made = model.node("LSTM", inputs, f"{op.output}/steps", {"hidden_size": size})
    both = [f"{made}/hidden", f"{made}/cell"]
    model.nodes[-1].output[:] = ["", *both]
    squeezed = [model.node("Squeeze", [half, axis], f"{half}_after") for half in both]
    model.node("Concat", squeezed, op.output, {"axis": -1})


def _recurrent(model: _Model, names: tuple[str, str, str, str], order: tuple[int, ...]) -> None:
    """Lay recurrent weights out as ONNX wants them: `[1, gates * H, in]`, biases in one, its own order."""
    kernel, bias, state_kernel, state_bias = names

    def sort(array: np.ndarray) -> np.ndarray:
        gates = np.split(array, len(order), -1)
        return np.concatenate([gates[gate] for gate in order], -1)

    for name in (kernel, state_kernel):
        model.weights[name] = np.ascontiguousarray(sort(model.weights[name]).T)[None]
    both = [sort(model.weights[bias]), sort(model.weights.pop(state_bias))]
    model.weights[bias] = np.concatenate(both)[None]


_EMITTERS: dict[str, Callable[[_Model, Op], None]] = {
    "flatten": _flatten,
    "reshape": _reshape,
    "concat": _concat,
    "columns": _columns,
    "one_hot": _one_hot,
    "normalize": _normalize,
    "dense": _dense,
    "activation": _activation,
    "gru": _gru,
    "lstm": _lstm,
    "squash": _squash,
    "bound": _bound,
    "mask": _mask,
    "softmax": _softmax,
    "choose": _choose,
    "stack": _stack,
    "identity": _identity,
}
