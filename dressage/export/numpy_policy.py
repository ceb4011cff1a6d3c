"""A trained policy with NumPy alone: `NumpyPolicy("policy.safetensors").act(observation)`.

This file imports NumPy and the standard library only. Copied to a robot it works without dressage.
"""

import hashlib
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

_SEAL = re.compile(rb'\\?"sha256\\?":\\?"([0-9a-f]{64})\\?"')
NAMED = 8
"""Numbers of an observation that an error names."""
PROBABILITIES = "probabilities"
"""How the names of outputs begin that hold the probabilities of discrete actions."""
_DTYPES = {"F32": "<f4", "F64": "<f8", "I64": "<i8", "I32": "<i4", "U8": "u1", "BOOL": "?"}


class NumpyPolicy:
    """A policy read from a safetensors file.

    Args:
        path: What `dressage.export.export_policy` wrote.
        dtype: Precision to compute in; the weights are stored as float32.

    Raises:
        ValueError: If the file is cut, altered or no policy.
    """

    def __init__(self, path: str | Path, dtype: Any = np.float32) -> None:  # noqa: ANN401 (NumPy's own)
        self.description, tensors = read_policy(Path(path))
        self.graph = self.description["graph"]
        self._dtype = dtype
        self._weights = {name: tensors[name].astype(dtype) for name in self.graph["weights"]}
        self._floats = {port["name"] for port in self.graph["inputs"] if port["dtype"] == "float32"}
        self._steps = bind(self.graph["ops"], operations(np), self._weights)
        self._chain, self._shape = _chain_to_action(self.graph, self._steps)

    def act(self, observation: Any, state: Any = None) -> Any:  # noqa: ANN401 (an array or a tree of them)
        """Choose the most likely action.

        Args:
            observation: One raw observation, or a batch with leading axes; a dict or tuple where the
                environment gives one.
            state: What the call before returned, for a recurrent policy; None starts an episode.

        Returns:
            The environment's action; for a recurrent policy the pair of action and state.

        Raises:
            ValueError: If the observation has other parts, another shape or other types than the policy
                takes, or the state is none of this policy's; the text says what it takes. Also if NaN
                leaves no choice among discrete actions; continuous ones are NaN then.
        """
        plain = type(observation) is np.ndarray and observation.dtype == self._dtype and state is None
        if self._chain and plain and observation.shape[-len(self._shape) :] == self._shape:
            # Nothing to arrange or to assemble, which would take as long as a small network.
            value = observation
            for function, weights in self._chain:
                value = function(value, *weights)
            return value
        return answer(self.graph, self.run(arrange(self.description, observation, state)))

    def run(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Map all inputs of the graph, with any number of leading axes, to all values that it computes."""
        values = {
            name: np.asarray(array, self._dtype if name in self._floats else None)
            for name, array in inputs.items()
        }
        for function, names, weights, output in self._steps:
            values[output] = function(*map(values.__getitem__, names), *weights)
        return values


def read_policy(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read a safetensors file and check it; returns its description and its arrays.

    Raises:
        ValueError: If the file is cut, altered or no policy.
    """
    content = path.read_bytes()
    seal = _SEAL.search(content)
    if seal is None:
        raise ValueError(
            f"{path} is no policy of dressage: it carries no checksum, perhaps since it was cut."
        )
    blank = content[: seal.start(1)] + b"0" * 64 + content[seal.end(1) :]
    if hashlib.sha256(blank).hexdigest().encode() != seal[1]:
        raise ValueError(f"The policy {path} is damaged: its content differs from its checksum.")
    start = 8 + int.from_bytes(content[:8], "little")
    if not content[8:9] == b"{":
        raise ValueError(f"{path} is no safetensors file; ONNX files are read by OnnxPolicy.")
    header = json.loads(content[8:start])
    description = json.loads(header.pop("__metadata__")["dressage"])
    if "graph" not in description:
        raise ValueError(
            f"{path} holds what training saved for itself and no exported policy. Write one with: "
            "dressage export RUN --format safetensors"
        )
    if "weights" not in description["graph"]:
        raise ValueError(f"{path} holds a StableHLO program, which StableHloPolicy runs.")
    tensors = {}
    for name, entry in header.items():
        first, last = (start + offset for offset in entry["data_offsets"])
        tensors[name] = np.frombuffer(content[first:last], _DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return description, tensors


def arrange(description: dict[str, Any], observation: Any, state: Any) -> dict[str, Any]:  # noqa: ANN401
    """Name the parts of an observation and a state as a policy's graph does.

    Raises:
        ValueError: If they are not what the policy takes.
    """
    if state is None and _is_plain(description["graph"], observation):
        return {"observation": observation}  # Checking parts by name takes as long as a small network.
    try:
        values = {name: np.asarray(leaf) for name, leaf in _leaves("observation", observation)}
    except (TypeError, ValueError) as error:  # Lists of unequal lengths, tensors of another device.
        raise ValueError(f"The observation is no array: {error}. {_taken(description)}") from error
    ports = _observation_ports(description)
    flaw = _flaw_of_parts(ports, values, observation)
    leads = {} if flaw else {port["name"]: _lead_of(port, values[port["name"]]) for port in ports}
    if len(set(leads.values())) > 1:
        flaw = f"The parts of the observation have different leading axes: {leads}."
    if flaw:
        raise ValueError(f"{flaw} {_taken(description)}")
    return values | _memory(description["graph"], state, next(iter(leads.values()), ()))


def _is_plain(graph: dict[str, Any], observation: Any) -> bool:  # noqa: ANN401
    """Whether an observation is an array that is all that a graph takes."""
    port, *others = graph["inputs"]
    if others or port["name"] != "observation" or type(observation) is not np.ndarray:
        return False
    rank = observation.ndim - len(port["shape"])
    fits = rank >= 0 and list(observation.shape[rank:]) == port["shape"]
    return fits and observation.dtype == port["dtype"]


def _flaw_of_parts(ports: list[dict[str, Any]], values: dict[str, Any], observation: Any) -> str:  # noqa: ANN401
    """Say what is wrong with an observation; empty for nothing."""
    names = [port["name"] for port in ports]
    if names == ["observation"] and isinstance(observation, dict | tuple):
        return f"The policy takes one array, got {_described_tree(observation)}."
    for name in names:
        if name not in values:
            return f"The observation has no {name!r}; it has {', '.join(sorted(values)) or 'no parts'}."
    unknown = sorted(values.keys() - set(names))
    if unknown:
        return f"The policy takes no {unknown[0]!r}; it takes {', '.join(names)}."
    return next(filter(None, (_flaw_of_part(port, values[port["name"]]) for port in ports)), "")


def _described_tree(tree: Any) -> str:  # noqa: ANN401 (a dict or a tuple)
    """Say what was given instead of an array, and how the array is had from it."""
    if not isinstance(tree, dict):
        return f"a tuple of {len(tree)}. Give the array itself, perhaps act(observation[0])"
    keys = ", ".join(map(repr, tree)) or "nothing"
    remedy = f"act(observation[{keys}])" if len(tree) == 1 else "its numbers side by side"
    return f"a dict of {keys}. Give the array itself: {remedy}"


def _flaw_of_part(port: dict[str, Any], found: Any) -> str:  # noqa: ANN401 (an array)
    name, shape = port["name"], tuple(port["shape"])
    if found.dtype.kind not in "fiub":
        return f"{name!r} is not made of numbers: its type is {found.dtype}."
    if found.ndim < len(shape) or found.shape[found.ndim - len(shape) :] != shape:
        return f"The policy takes {name!r} of shape {shape}, or a batch of it, got {found.shape}."
    if port["dtype"] == "float32" or found.dtype.kind != "f" or (found == np.trunc(found)).all():
        return ""
    broken = found[found != np.trunc(found)][0]
    return f"The policy takes whole numbers ({port['dtype']}) as {name!r}, got {broken}."


def _lead_of(port: dict[str, Any], found: Any) -> tuple[int, ...]:  # noqa: ANN401 (an array)
    return tuple(found.shape[: found.ndim - len(port["shape"])])


def _memory(graph: dict[str, Any], state: Any, lead: tuple[int, ...]) -> dict[str, Any]:  # noqa: ANN401
    """Return the recurrent state that goes in: zeros where an episode starts."""
    ports = [port for port in graph["inputs"] if port["name"] in graph["states"]]
    shapes = {port["name"]: (*lead, *port["shape"]) for port in ports}
    if state is None:
        return {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    if not ports:
        raise ValueError("The policy has no memory and takes no state: act(observation).")
    if not isinstance(state, dict):
        raise ValueError(f"The state is a {type(state).__name__}, {_state_of(shapes)}")
    found = {name: np.shape(array) for name, array in state.items()}
    if found != shapes:
        raise ValueError(f"The state has the shapes {found}, {_state_of(shapes)}")
    return dict(state)


def _state_of(shapes: dict[str, Any]) -> str:
    return (
        f"and not the dict of the shapes {shapes} that this policy takes. Give what `act` returned beside "
        "the action before, for as many observations; None starts an episode."
    )


def _taken(description: dict[str, Any]) -> str:
    """Say what a policy takes: dtype, shape and order."""
    ports, signals = _observation_ports(description), description.get("card", {}).get("observation", ())
    if len(ports) > 1 or ports[0]["name"] != "observation":
        parts = (f"{port['name']} ({port['dtype']}, shape {tuple(port['shape'])})" for port in ports)
        return (
            f"It takes {', '.join(parts)}, nested as the environment gives them; batches have leading axes."
        )
    units = [f"{signal['name']} in {signal['unit']}".removesuffix(" in ") for signal in signals]
    more = f" and {len(units) - NAMED} more, which `dressage inspect` lists" if len(units) > NAMED else ""
    order = f"{', '.join(units[:NAMED])}{more}, in this order" if units else "in the environment's order"
    shape = tuple(ports[0]["shape"])
    return f"It takes {ports[0]['dtype']} numbers of shape {shape}, or a batch with leading axes: {order}."


def _observation_ports(description: dict[str, Any]) -> list[dict[str, Any]]:
    graph = description["graph"]
    return [port for port in graph["inputs"] if port["name"] not in graph["states"]]


def answer(graph: dict[str, Any], outputs: dict[str, Any]) -> Any:  # noqa: ANN401
    """Return what `act` does: the environment's action, and with it the state of a recurrent policy.

    Raises:
        ValueError: If probabilities are NaN: the largest of them is then the first, and looks like a choice.
    """
    for name in outputs:
        if name.startswith(PROBABILITIES) and np.isnan(outputs[name]).any():
            raise ValueError(
                f"No action can be chosen: the {name} of the actions are NaN, as an observation or state "
                "with NaN, or with numbers out of all bounds, makes them. Look at it before the policy does."
            )
    action = _assembled(graph, outputs)
    if not graph["states"]:
        return action
    return action, {name: outputs[after] for name, after in graph["states"].items()}


def _assembled(graph: dict[str, Any], outputs: dict[str, Any]) -> Any:  # noqa: ANN401
    """Put the action together that the environment takes."""
    if graph["action_tree"] == "array":
        return outputs["action"]
    names = [port["name"] for port in graph["outputs"] if port["name"].startswith("action.")]
    parts = {name.removeprefix("action."): outputs[name] for name in names}
    return tuple(parts.values()) if graph["action_tree"] == "tuple" else parts


def bind(ops: list[dict[str, Any]], table: dict[str, Any], weights: dict[str, Any]) -> list[Any]:
    """Look up each operation's function and weights once; returns function, inputs, weights and output."""
    steps = []
    for op in ops:
        if op["op"] not in table:
            raise ValueError(f"This version of the runner knows no operation {op['op']!r}.")
        settings = {name: value for name, value in op.items() if name not in ("op", "in", "out")}
        function = table[op["op"]](**settings)
        inputs = tuple(name for name in op["in"] if name not in weights)
        bound = tuple(weights[name] for name in op["in"] if name in weights)
        steps.append((function, inputs, bound, op["out"]))
    return steps


def _chain_to_action(graph: dict[str, Any], steps: list[Any]) -> tuple[list[Any], tuple[int, ...]]:
    """Return the steps from a lone observation to the action and its shape, if each takes the one before."""
    chain, wanted = [], "action"
    for function, inputs, weights, output in reversed(steps):
        if output == wanted and len(inputs) == 1:
            chain.append((function, weights))
            wanted = inputs[0]
    shape = tuple(graph["inputs"][0]["shape"])
    plain = [(port["name"], port["dtype"]) for port in graph["inputs"]] == [("observation", "float32")]
    plain = plain and not any(port["name"].startswith(PROBABILITIES) for port in graph["outputs"])
    return (chain[::-1] if plain and shape and wanted == "observation" else []), shape


def operations(xp: Any) -> dict[str, Any]:  # noqa: ANN401 (a module)
    """Return what makes each operation of its settings; `xp` is NumPy, or a module with its functions.

    An operation takes values first and weights after them; features stand on the last axis.
    """
    activations = {
        "tanh": xp.tanh,
        "relu": lambda x: xp.maximum(x, 0),
        "elu": lambda x: xp.where(x > 0, x, xp.expm1(xp.minimum(x, 0))),
        "gelu": lambda x: 0.5 * x * (1 + xp.tanh(0.7978845608028654 * (x + 0.044715 * x**3))),
        "silu": lambda x: x * _sigmoid(xp, x),
        "softplus": lambda x: xp.logaddexp(x, 0),
        "sigmoid": lambda x: _sigmoid(xp, x),
    }
    return {
        "flatten": lambda rank, size: lambda x: x.reshape((*x.shape[: x.ndim - rank], size)),
        "reshape": lambda shape: lambda x: x.reshape((*x.shape[:-1], *shape)),
        "concat": lambda: lambda *x: xp.concatenate(x, -1),
        "columns": lambda start, stop: lambda x: x[..., start:stop],
        "one_hot": lambda columns, categories: (
            lambda x: (x[..., xp.asarray(columns)] == xp.asarray(categories)).astype("float32")
        ),
        "normalize": lambda clip: _normalize(xp, clip),
        "dense": lambda activation=None: _dense(activations.get(activation)),
        "activation": lambda activation: activations[activation],
        "gru": lambda: partial(_gru, xp),
        "lstm": lambda: partial(_lstm, xp),
        "squash": lambda: lambda x, half_width, middle: xp.tanh(x) * half_width + middle,
        "bound": lambda: (
            lambda x, least, greatest, half_width, middle: (
                xp.minimum(xp.maximum(x, least), greatest) * half_width + middle
            )
        ),
        "mask": lambda: lambda logits, mask: xp.where(mask, logits, -1e30),
        "softmax": lambda: partial(_softmax, xp),
        "choose": lambda start: lambda logits: xp.argmax(logits, -1) + start,
        "stack": lambda: lambda *x: xp.stack(x, -1),
        "identity": lambda: lambda x: x,
    }


def _normalize(xp: Any, clip: float | None) -> Any:  # noqa: ANN401
    if clip is None:
        return lambda x, mean, deviation: (x - mean) / deviation
    least, greatest = xp.asarray(-clip, "float32"), xp.asarray(clip, "float32")  # Quicker than numbers.
    return lambda x, mean, deviation: xp.minimum(xp.maximum((x - mean) / deviation, least), greatest)


def _dense(activate: Any) -> Any:  # noqa: ANN401
    def dense(x: Any, kernel: Any, bias: Any) -> Any:  # noqa: ANN401
        x = x @ kernel
        x += bias  # In place, where arrays can be changed.
        return x if activate is None else activate(x)

    return dense


def _leaves(name: str, tree: Any) -> list[tuple[str, Any]]:  # noqa: ANN401
    if not isinstance(tree, dict | tuple):
        return [(name, tree)]
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    return [leaf for key, part in items for leaf in _leaves(f"{name}.{key}", part)]


def _sigmoid(xp: Any, x: Any) -> Any:  # noqa: ANN401
    return 0.5 * xp.tanh(0.5 * x) + 0.5  # Overflows for no x.


def _softmax(xp: Any, logits: Any) -> Any:  # noqa: ANN401
    weights = xp.exp(logits - xp.max(logits, -1, keepdims=True))
    return weights / xp.sum(weights, -1, keepdims=True)


def _gru(xp: Any, x: Any, state: Any, kernel: Any, bias: Any, state_kernel: Any, state_bias: Any) -> Any:  # noqa: ANN401
    """Cho et al. 2014, with the reset gate after the product; gates stand in the order r, z, n."""
    given, kept = xp.split(x @ kernel + bias, 3, -1), xp.split(state @ state_kernel + state_bias, 3, -1)
    reset, update = _sigmoid(xp, given[0] + kept[0]), _sigmoid(xp, given[1] + kept[1])
    return (1 - update) * xp.tanh(given[2] + reset * kept[2]) + update * state


def _lstm(xp: Any, x: Any, state: Any, kernel: Any, bias: Any, state_kernel: Any, state_bias: Any) -> Any:  # noqa: ANN401
    """Gates in the order i, f, g, o; the state is output and cell side by side."""
    hidden, cell = xp.split(state, 2, -1)
    gates = xp.split(x @ kernel + bias + hidden @ state_kernel + state_bias, 4, -1)
    cell = _sigmoid(xp, gates[1]) * cell + _sigmoid(xp, gates[0]) * xp.tanh(gates[2])
    return xp.concatenate([_sigmoid(xp, gates[3]) * xp.tanh(cell), cell], -1)
