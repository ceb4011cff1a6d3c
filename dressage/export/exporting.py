"""`export_policy`: a trained policy as one file that has proved itself before it is put in place."""

import base64
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dressage.config import suggest
from dressage.errors import CheckpointError, ConfigError
from dressage.export.card import Card
from dressage.export.comparison import differences, own_errors
from dressage.export.manifest import write_manifest
from dressage.export.numpy_policy import NumpyPolicy
from dressage.export.onnx_format import to_onnx
from dressage.export.onnx_policy import OnnxPolicy
from dressage.export.probes import probe_inputs
from dressage.export.stablehlo import StableHloPolicy, to_stablehlo
from dressage.learning.policy_files import check_seal, pack, safe_names, write_whole
from dressage.learning.policy_graph import Arrays, Deployable, Deployment

FORMATS = ("onnx", "safetensors", "stablehlo")
STORED = 32
"""Observations and actions that a file keeps as its own test."""
TRIED = 4096
"""Observations that a file is tried on before it is put in place; fewer where they are pictures."""
TRIED_NUMBERS = 4_000_000
"""Numbers in all these observations together, at most."""

Runner = NumpyPolicy | OnnxPolicy | StableHloPolicy


def export_policy(
    policy: Deployable,
    path: str | Path,
    *,
    format: str | None = None,
    card: Card | None = None,
    critic: bool = False,
) -> Path:
    """Write a policy into one file: raw observation in, environment action out.

    The file is read back and tried on random and extreme observations against the live policy, and is put in
    place only if it equals it; the policy and its statistics are not changed.

    Args:
        policy: A policy that dressage trained: anything with `deployment`.
        path: The file; its ending tells the format.
        format: `onnx`, `safetensors` or `stablehlo`; None reads it off the ending.
        card: Where the policy comes from and what it is worth.
        critic: Whether a safetensors file holds the critic too, which only further training needs. It always
            holds a recurrent one, which remembers alongside the actor.

    Returns:
        The path.

    Raises:
        ConfigError: If the format is unknown or holds no critic, or the policy cannot be exported whole.
        CheckpointError: If the file does not compute what the policy does; there is no file then.
        MissingExtraError: If a package that the format needs is not installed.
    """
    path = Path(path)
    chosen = _format_of(path, format)
    if critic and chosen != "safetensors":
        raise ConfigError(f"Only a safetensors file holds a critic, {path.name} cannot: leave out `critic`.")
    deployment = deployment_of(policy)
    trial = make_trial(deployment)
    content = file_content(deployment, trial, chosen, card or Card(), critic=critic)
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / f"policy.{chosen}"
        draft.write_bytes(content)
        prove(draft, trial, str(path))
    write_whole(path, content)
    return path


def export_policies(
    policies: Mapping[str, Deployable],
    folder: str | Path,
    *,
    format: str = "onnx",
    cards: Mapping[str, Card] | None = None,
    critic: bool = False,
) -> dict[str, Path]:
    """Write one file for each agent, and a manifest that names them with their checksums.

    Args:
        policies: Policies by agent.
        folder: Where the files go.
        format: As for `export_policy`.
        cards: Cards by agent.
        critic: As for `export_policy`.

    Returns:
        The files by agent.

    Raises:
        ConfigError: If there is no policy, or two agents' names make one file name.
    """
    if not policies:
        raise ConfigError("There is no policy to export: the mapping of agents is empty.")
    folder, names = Path(folder), safe_names(list(policies))
    paths = {
        agent: export_policy(
            policy,
            folder / f"{names[agent]}.{format}",
            format=format,
            card=(cards or {}).get(agent),
            critic=critic,
        )
        for agent, policy in policies.items()
    }
    write_manifest(folder, paths)
    return paths


def deployment_of(policy: Any) -> Deployment:  # noqa: ANN401 (whatever a user hands over)
    """Return what a policy's files are made of.

    Raises:
        ConfigError: If the object is no policy that can be exported.
    """
    method = getattr(policy, "deployment", None)
    if method is None:
        raise ConfigError(
            f"{type(policy).__name__} cannot be exported: it does not say what it computes (it has no method "
            "`deployment`). Policies that dressage trains do."
        )
    deployment: Deployment = method()
    return deployment


@dataclass(frozen=True)
class Trial:
    """What a policy does on random and extreme observations.

    Attributes:
        graph: The graph as JSON holds it.
        inputs: By name, `[N, *shape]`.
        live: The live policy's outputs, likewise.
        own_error: How far the live policy itself is off.
    """

    graph: dict[str, Any]
    inputs: Arrays
    live: Arrays
    own_error: Arrays

    def first(self, rows: int) -> dict[str, Any]:
        """Return the first rows as JSON holds them."""
        parts = {"inputs": self.inputs, "outputs": self.live, "own_error": self.own_error}
        return {
            name: encode({key: array[:rows] for key, array in part.items()}) for name, part in parts.items()
        }


def make_trial(deployment: Deployment) -> Trial:
    """Let the live policy act on random and extreme observations."""
    graph, weights = deployment.graph.to_json(), deployment.graph.weights
    mean, deviation = weights.get("observation/mean", 0.0), weights.get("observation/deviation", 1.0)
    size = sum(int(np.prod(port.shape, dtype=int)) for port in deployment.graph.inputs)
    rows = max(STORED, min(TRIED, TRIED_NUMBERS // size))
    inputs = probe_inputs(graph, rows, mean, deviation)
    live = deployment.outputs(inputs)
    return Trial(graph, inputs, live, own_errors(deployment.outputs, deployment.reference, inputs, live))


def file_content(
    deployment: Deployment,
    trial: Trial,
    format: str,
    card: Card,
    *,
    critic: bool,
) -> bytes:
    """Lay a policy out as the bytes of a file."""
    description, tensors = deployment.file_parts()
    description |= {"card": card.to_json(), "test": trial.first(STORED)}
    if format == "onnx":
        return to_onnx(deployment.graph, _without_ops(description))
    if format == "stablehlo":
        return to_stablehlo(deployment.graph, _without_ops(description))
    left_out = deployment.training_only
    if not critic and left_out is not None:
        tensors = {name: array for name, array in tensors.items() if not name.startswith(left_out)}
    return pack(description, tensors)


def prove(draft: Path, trial: Trial, path: str) -> None:
    """Try a file on what the live policy was tried on.

    Raises:
        CheckpointError: If it computes anything else.
    """
    wrong = differences(trial.graph, open_runner(draft).run(trial.inputs), trial.live, trial.own_error)
    if wrong:
        raise CheckpointError(
            f"{path} was not written: the file would not act as the policy does. {'; '.join(wrong)}."
        )


def open_runner(path: Path) -> Runner:
    """Open a file with what runs it: NumPy, onnxruntime or JAX, by its ending.

    Raises:
        CheckpointError: If the file is missing, cut, altered or no policy.
    """
    runners = {"onnx": OnnxPolicy, "safetensors": NumpyPolicy, "stablehlo": StableHloPolicy}
    chosen = _format_of(path, None)
    if not path.is_file():
        raise CheckpointError(f"There is no policy at {path}.")
    check_seal(path.read_bytes(), str(path))
    try:
        runner: Runner = runners[chosen](path)
    except ValueError as error:  # NumpyPolicy knows no other kind, since it stands alone.
        raise CheckpointError(str(error)) from error
    return runner


def encode(arrays: Arrays) -> dict[str, Any]:
    """Write arrays as JSON holds them, bit for bit."""
    return {
        name: {
            "dtype": str(array.dtype),
            "shape": list(array.shape),
            "base64": base64.b64encode(np.ascontiguousarray(array).tobytes()).decode(),
        }
        for name, array in arrays.items()
    }


def decode(fields: Mapping[str, Any]) -> Arrays:
    """Read what `encode` wrote."""
    return {
        name: np.frombuffer(base64.b64decode(entry["base64"]), entry["dtype"]).reshape(entry["shape"])
        for name, entry in fields.items()
    }


def _format_of(path: Path, given: str | None) -> str:
    chosen = given or path.suffix.removeprefix(".")
    if not chosen:
        endings = ", ".join(f".{name}" for name in FORMATS)
        raise ConfigError(f"{path.name} has no ending that tells the format. Known: {endings}.")
    if chosen not in FORMATS:
        source = "format" if given else f"the ending of {path.name}"
        raise ConfigError(f"There is no format {chosen!r} ({source}).{suggest(chosen, FORMATS)}")
    if path.suffix != f".{chosen}":
        meant = path / f"policy.{chosen}" if path.is_dir() else path.with_suffix(f".{chosen}")
        raise ConfigError(
            f"A file of format {chosen} ends in .{chosen}; {path.name} does not. Name it {meant}"
        )
    return chosen


def _without_ops(description: dict[str, Any]) -> dict[str, Any]:
    """Leave out what the program itself says."""
    graph = {name: value for name, value in description["graph"].items() if name not in ("ops", "weights")}
    return description | {"graph": graph}
