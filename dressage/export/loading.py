"""`load_policy`: a shipped policy back into dressage, to act, to be measured or to be trained on."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dressage.errors import CheckpointError
from dressage.export.manifest import read_manifest
from dressage.learning.policy_files import FILE, read_policy_file

SAFETENSORS = ".safetensors"


def load_policy(path: str | Path) -> Any:  # noqa: ANN401 (the kind of policy that was exported)
    """Load a policy from a safetensors file.

    Args:
        path: The file, or a folder with `policy.safetensors` in it.

    Returns:
        The policy, of the class that was exported.

    Raises:
        CheckpointError: If the file is missing, cut, altered, or of a format that is only for running.
    """
    path = Path(path)
    path = path / FILE if path.is_dir() else path
    if path.suffix in (".onnx", ".stablehlo"):
        runner = {".onnx": "OnnxPolicy", ".stablehlo": "StableHloPolicy"}[path.suffix]
        raise CheckpointError(
            f"{path} is a program and not what dressage loads back: run it with {runner}, or load the "
            "safetensors file of the same policy."
        )
    description, tensors = read_policy_file(path)
    if "agents" in description:
        raise CheckpointError(
            f"{path} holds the policies of several agents as training saved them. Load those that it "
            "exported, one file for each agent with a manifest: load_policies(FOLDER)."
        )
    loader = _LOADERS.get(description.get("loader", ""))
    if loader is None:
        raise CheckpointError(
            f"{path} holds a policy that dressage cannot load back (loader {description.get('loader')!r}); "
            "NumpyPolicy runs it."
        )
    return loader(description["policy"], tensors)


def load_policies(folder: str | Path) -> dict[str, Any]:
    """Load the policies that `export_policies` wrote, by agent.

    Returns:
        What `load_policy` gives for safetensors files, and runners for the other formats.

    Raises:
        CheckpointError: If the manifest or a file is missing, cut or altered.
    """
    from dressage.export.exporting import open_runner

    paths = read_manifest(Path(folder))
    return {
        agent: load_policy(path) if path.suffix == SAFETENSORS else open_runner(path)
        for agent, path in paths.items()
    }


def _load_ppo(description: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Any:  # noqa: ANN401
    from dressage.ppo.policy import Policy

    return Policy.from_tensors(description, tensors)


def _load_adapter(description: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Any:  # noqa: ANN401
    from dressage.rl.adapters import load_adapter

    return load_adapter(description, tensors)


_LOADERS: dict[str, Callable[[Mapping[str, Any], Mapping[str, np.ndarray]], Any]] = {
    "adapter": _load_adapter,
    "ppo": _load_ppo,
}
