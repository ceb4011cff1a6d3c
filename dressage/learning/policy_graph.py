"""A trained policy as a short list of named operations that no framework owns; every file is made of it.

NumPy is all that this module needs, so that files can be read where JAX is not installed. What each operation
computes is defined once, by `dressage.export.numpy_policy.operations`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from dressage.errors import CheckpointError
from dressage.learning.policy_files import weights_digest

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Port:
    """An input or output of a graph; a batch axis stands before its shape.

    Attributes:
        name: `observation`, `action`, `probabilities`, `state`, ...; parts of a tree follow after dots.
        shape: Shape of one entry of the batch.
        dtype: `float32`, `int64` or `bool`.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"


@dataclass(frozen=True)
class Op:
    """One operation.

    Attributes:
        kind: A name in `dressage.export.numpy_policy.operations`.
        inputs: Names of values and weights, in the operation's order.
        output: Name of the value that it makes.
        settings: Numbers and names that shape the operation.
    """

    kind: str
    inputs: tuple[str, ...]
    output: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PolicyGraph:
    """From raw observations to the environment's actions, the most likely ones.

    Attributes:
        inputs: Observations in the environment's own shape, then recurrent states.
        outputs: Actions as the environment takes them, probabilities of discrete choices, next states.
        ops: Operations in the order in which they run.
        weights: Arrays by name; float32, of any shape.
        states: For each recurrent state the name of its input and of its output; an episode starts at zeros.
        action_tree: `array`, `dict` or `tuple`: how the `action` outputs make up one action.
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    ops: tuple[Op, ...]
    weights: Arrays
    states: Mapping[str, str] = field(default_factory=dict)
    action_tree: str = "array"

    def to_json(self) -> dict[str, Any]:
        """Describe everything but the weights' numbers, as JSON holds it."""
        return {
            "inputs": [_port_fields(port) for port in self.inputs],
            "outputs": [_port_fields(port) for port in self.outputs],
            "states": dict(self.states),
            "action_tree": self.action_tree,
            "ops": [
                {"op": op.kind, "in": list(op.inputs), "out": op.output, **op.settings} for op in self.ops
            ],
            "weights": sorted(self.weights),
            "start": [op.settings["start"] for op in self.ops if op.kind == "choose"],
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any], tensors: Mapping[str, np.ndarray]) -> "PolicyGraph":
        """Rebuild a graph from its description and tensors that include its weights.

        Raises:
            CheckpointError: If a weight is missing.
        """
        lacking = [name for name in fields["weights"] if name not in tensors]
        if lacking:
            raise CheckpointError(f"The policy is incomplete: it lacks the weights {', '.join(lacking)}.")
        return cls(
            inputs=tuple(_port_from(port) for port in fields["inputs"]),
            outputs=tuple(_port_from(port) for port in fields["outputs"]),
            ops=tuple(_op_from(op) for op in fields["ops"]),
            weights={name: tensors[name] for name in fields["weights"]},
            states=fields["states"],
            action_tree=fields["action_tree"],
        )


class GraphDraft:
    """A graph that is being put together; `finish` freezes it."""

    def __init__(self) -> None:
        self._inputs: list[Port] = []
        self._outputs: list[Port] = []
        self._ops: list[Op] = []
        self._weights: Arrays = {}
        self._states: dict[str, str] = {}

    def take(self, port: Port) -> str:
        """Add an input; returns its name."""
        self._inputs.append(port)
        return port.name

    def weight(self, name: str, array: Any) -> str:  # noqa: ANN401 (any array of numbers)
        """Add a float32 weight; returns its name."""
        self._weights[name] = np.asarray(array, np.float32)
        return name

    def add(
        self, kind: str, inputs: Sequence[str], output: str, settings: Mapping[str, Any] | None = None
    ) -> str:
        """Add an operation; returns the name of its output."""
        self._ops.append(Op(kind, tuple(inputs), output, dict(settings or {})))
        return output

    def give(self, port: Port) -> None:
        """Make a value of the port's name an output."""
        self._outputs.append(port)

    def remember(self, before: Port, after: str) -> None:
        """Make a value the next value of a state that `take` added."""
        self._states[before.name] = after
        self._outputs.append(Port(after, before.shape, before.dtype))

    def finish(self, action_tree: str = "array") -> PolicyGraph:
        """Freeze the graph."""
        states = [port for port in self._inputs if port.name in self._states]
        others = [port for port in self._inputs if port.name not in self._states]
        return PolicyGraph(
            inputs=(*others, *states),
            outputs=tuple(self._outputs),
            ops=tuple(self._ops),
            weights=self._weights,
            states=self._states,
            action_tree=action_tree,
        )


@dataclass(frozen=True)
class Deployment:
    """All that a policy's files are made of.

    Attributes:
        graph: What it computes.
        loader: Names what loads the policy again: `ppo`, `adapter`, ...; empty where nothing does.
        description: What the loader needs besides the tensors; JSON holds it.
        tensors: The loader's arrays; those of the graph may be among them.
        outputs: The live policy: maps the graph's inputs `[N, *shape]` to its outputs `[N, *shape]` by its
            own code, not by the graph.
        reference: The same in float64, whose distance from `outputs` is the policy's own rounding error.
        training_only: Prefix of the tensors that acting does not need, such as a critic's; None for none.
    """

    graph: PolicyGraph
    loader: str
    description: Mapping[str, Any]
    tensors: Arrays
    outputs: Callable[[Arrays], Arrays]
    reference: Callable[[Arrays], Arrays]
    training_only: str | None = "critic/"

    def file_parts(self) -> tuple[dict[str, Any], Arrays]:
        """Return what a safetensors file of the policy describes, and its tensors."""
        description = {
            "weights_sha256": weights_digest(self.graph.weights),
            "graph": self.graph.to_json(),
            "loader": self.loader,
            "policy": dict(self.description),
        }
        return description, {**self.tensors, **self.graph.weights}


class Deployable(Protocol):
    """A policy that can leave home."""

    def deployment(self) -> Deployment:
        """Return what the policy's files are made of.

        Raises:
            ConfigError: If the policy cannot be exported whole; the text says why.
        """


def _port_fields(port: Port) -> dict[str, Any]:
    return {"name": port.name, "shape": list(port.shape), "dtype": port.dtype}


def _port_from(fields: dict[str, Any]) -> Port:
    return Port(fields["name"], tuple(fields["shape"]), fields["dtype"])


def _op_from(fields: dict[str, Any]) -> Op:
    settings = {name: value for name, value in fields.items() if name not in ("op", "in", "out")}
    return Op(fields["op"], tuple(fields["in"]), fields["out"], settings)
