"""`verify_file`: lets exported files prove themselves again, on whatever machine they have come to."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dressage.errors import CheckpointError, MissingExtraError
from dressage.export.comparison import differences
from dressage.export.exporting import Runner, decode, open_runner
from dressage.export.manifest import check_manifest
from dressage.export.onnx_format import import_onnx
from dressage.export.onnx_policy import OnnxPolicy
from dressage.export.places import exported_at
from dressage.export.probes import probe_inputs
from dressage.learning.policy_files import FILE, read_policy_file, weights_digest
from dressage.learning.policy_graph import Arrays

BATCHES = (1, 7, 256)
EXTREME_ROWS = 1024
CRITIC = "critic/"
"""How the names of a critic's tensors begin."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: What was looked at.
        passed: Whether it held; None where it could not be tried.
        note: What was found.
    """

    name: str
    passed: bool | None
    note: str


@dataclass(frozen=True)
class Verification:
    """What became of a file's checks.

    Attributes:
        path: The file.
        checks: In the order in which they were made.
    """

    path: Path
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return all(check.passed is not False for check in self.checks)


def verify_policies(path: str | Path) -> tuple[Verification, ...]:
    """Check everything that was exported to a place; see `verify_file`.

    Args:
        path: A file, the manifest of several agents (`policies.json`), whose checksums are compared too, or a
            folder that holds some of them.

    Returns:
        One verification a manifest and one a file; where a file is damaged, a check that failed says how.

    Raises:
        ConfigError: If there is nothing that was exported.
        MissingExtraError: If the package that runs a format is not installed.
    """
    found = exported_at(Path(path))
    manifests = tuple(_or_failed(_verify_manifest, manifest) for manifest in found.manifests)
    return manifests + tuple(_or_failed(verify_file, file) for file in found.policies)


def verify_file(path: str | Path) -> Verification:
    """Check a file's checksum, structure and outputs; nothing but the file and its runner is needed.

    Args:
        path: What `export_policy` wrote.

    Raises:
        CheckpointError: If the file is missing, cut, altered or no policy; nothing can be tried then.
        MissingExtraError: If the package that runs the format is not installed.
    """
    path = Path(path)
    runner = open_runner(path)
    test = runner.description.get("test")
    if test is None:
        raise CheckpointError(
            f"{path} carries no test: it was saved, not exported. Write one with it: dressage export RUN"
        )
    checks = [Check("checksum", passed=True, note="the file is what was written")]
    checks.append(_structure(path, runner))
    parts = {name: decode(part) for name, part in test.items()}
    checks.append(_stored_test(runner, parts))
    checks += [_batches(runner, parts, size) for size in BATCHES]
    checks.append(_extremes(runner))
    return Verification(path, tuple(checks))


def describe_file(path: str | Path) -> dict[str, Any]:
    """Return what a file tells of itself: card, graph, versions, and the test that it carries.

    Args:
        path: What `export_policy` wrote, or a folder with `policy.safetensors` in it.

    Raises:
        CheckpointError: If the file is missing, cut, altered or no policy.
        MissingExtraError: If it is an ONNX file and onnxruntime is not installed.
    """
    path = Path(path)
    path = path / FILE if path.is_dir() else path
    description = OnnxPolicy(path).description if path.suffix == ".onnx" else read_policy_file(path)[0]
    if "graph" not in description:
        raise CheckpointError(
            f"{path} holds what training saved for itself and no exported policy. Write one with: "
            "dressage export RUN"
        )
    return description


def critic_bytes(path: Path) -> int:
    """Return how many bytes of a policy's file are its critic's weights, which acting does not need."""
    if path.suffix != ".safetensors":
        return 0
    tensors = read_policy_file(path)[1]
    return sum(array.nbytes for name, array in tensors.items() if name.startswith(CRITIC))


def _or_failed(verify: Callable[[Path], Verification], path: Path) -> Verification:
    try:
        return verify(path)
    except CheckpointError as error:
        return Verification(path, (Check("file", passed=False, note=str(error)),))


def _verify_manifest(path: Path) -> Verification:
    checks = [Check("checksum", passed=True, note="the list is what was written")]
    for agent, (file, flaw) in check_manifest(path).items():
        checks.append(Check(agent, passed=not flaw, note=flaw or f"{file.name} is the file that was written"))
    return Verification(path, tuple(checks))


def _structure(path: Path, runner: Runner) -> Check:
    if path.suffix == ".safetensors":
        description, tensors = read_policy_file(path)
        used = {name: tensors[name] for name in description["graph"]["weights"]}
        intact = weights_digest(used) == description["weights_sha256"]
        return Check("weights", passed=intact, note=f"{len(used)} tensors")
    if path.suffix == ".stablehlo":
        return Check("program", passed=True, note="JAX took it")
    try:
        onnx = import_onnx()
    except MissingExtraError as error:
        return Check("onnx checker", passed=None, note=str(error))
    model = onnx.load(str(path))
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return Check("onnx checker", passed=False, note=str(error))
    return Check("onnx checker", passed=True, note=f"{len(model.graph.node)} nodes, shapes inferred")


def _stored_test(runner: Runner, parts: dict[str, Arrays]) -> Check:
    found = runner.run(parts["inputs"])
    wrong = differences(runner.graph, found, parts["outputs"], parts["own_error"])
    rows = len(next(iter(parts["inputs"].values())))
    return Check("stored test", passed=not wrong, note="; ".join(wrong) or f"{rows} observations and actions")


def _batches(runner: Runner, parts: dict[str, Arrays], size: int) -> Check:
    """Run the stored test again in batches of one size."""
    stored = len(next(iter(parts["inputs"].values())))
    count = -(-stored // size) * size
    repeated = {
        name: {key: np.resize(array, (count, *array.shape[1:])) for key, array in part.items()}
        for name, part in parts.items()
    }
    pieces = [
        runner.run({name: array[start : start + size] for name, array in repeated["inputs"].items()})
        for start in range(0, count, size)
    ]
    names = [port["name"] for port in runner.graph["outputs"]]
    found = {name: np.concatenate([piece[name] for piece in pieces]) for name in names}
    wrong = differences(runner.graph, found, repeated["outputs"], repeated["own_error"])
    return Check(f"batches of {size}", passed=not wrong, note="; ".join(wrong) or "the same actions")


def _extremes(runner: Runner) -> Check:
    graph: dict[str, Any] = runner.graph
    outputs = runner.run(probe_inputs(graph, EXTREME_ROWS, seed=2))
    broken = [
        port["name"]
        for port in graph["outputs"]
        if port["dtype"] == "float32" and not np.isfinite(outputs[port["name"]]).all()
    ]
    note = f"not finite: {', '.join(broken)}" if broken else f"finite on {EXTREME_ROWS} extreme observations"
    return Check("extremes", passed=not broken, note=note)
