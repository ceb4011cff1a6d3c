"""A policy's graph as StableHLO, for those who have JAX: any batch size, on CPU and CUDA."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dressage.errors import CheckpointError
from dressage.export.batching import as_rows
from dressage.export.numpy_policy import answer, arrange, bind, operations
from dressage.learning.policy_files import pack, read_policy_file
from dressage.learning.policy_graph import PolicyGraph

PLATFORMS = ("cpu", "cuda")
PROGRAM = "stablehlo"


def to_stablehlo(graph: PolicyGraph, description: Mapping[str, Any]) -> bytes:
    """Write a graph as a file that holds its StableHLO program, weights included.

    The program, serialised by `jax.export`, is the tensor `stablehlo` of a safetensors container, so that it
    has description and checksum beside it.

    Args:
        graph: What the policy computes.
        description: Goes into the file as JSON.
    """
    import jax

    steps = bind(graph.to_json()["ops"], operations(jax.numpy), graph.weights)
    (batch,) = jax.export.symbolic_shape("batch")
    arguments = {
        port.name: jax.ShapeDtypeStruct((batch, *port.shape), _jax_dtype(port.dtype)) for port in graph.inputs
    }
    names = [port.name for port in graph.outputs]

    def compute(inputs: dict[str, Any]) -> dict[str, Any]:
        values = dict(inputs)
        for function, taken, weights, output in steps:
            values[output] = function(*(values[name] for name in taken), *weights)
        return {name: values[name] for name in names}

    exported = jax.export.export(jax.jit(compute), platforms=PLATFORMS)(arguments)
    return pack(description, {PROGRAM: np.frombuffer(exported.serialize(), np.uint8)})


class StableHloPolicy:
    """A policy read from a StableHLO file; needs JAX.

    Args:
        path: What `dressage.export.export_policy` wrote.

    Raises:
        CheckpointError: If the file is missing, cut, altered or no such policy.
    """

    def __init__(self, path: str | Path) -> None:
        import jax

        self.description, tensors = read_policy_file(Path(path))
        if PROGRAM not in tensors:
            raise CheckpointError(f"{path} holds no StableHLO program; load it with `load_policy`.")
        self.graph: dict[str, Any] = self.description["graph"]
        self._call = jax.jit(jax.export.deserialize(bytearray(tensors[PROGRAM].tobytes())).call)
        self._dtypes = {port["name"]: _jax_dtype(port["dtype"]) for port in self.graph["inputs"]}

    def act(self, observation: Any, state: Any = None) -> Any:  # noqa: ANN401 (an array or a tree of them)
        """Choose the most likely action; see `NumpyPolicy.act`."""
        return answer(self.graph, self.run(arrange(self.description, observation, state)))

    def run(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Map all inputs of the graph, with any number of leading axes, to its outputs."""
        rows, lead = as_rows(self.graph, inputs, self._dtypes)
        if 0 in lead:
            raise ValueError(f"A StableHLO program takes at least one observation, got a batch of {lead}.")
        made = self._call(rows)
        return {name: np.asarray(array).reshape((*lead, *array.shape[1:])) for name, array in made.items()}


def _jax_dtype(dtype: str) -> Any:  # noqa: ANN401
    return np.dtype("int32" if dtype == "int64" else dtype)  # JAX computes with 32 bits.
