"""A policy on disk: weights in safetensors, all else in JSON with checksums; nothing in it is executed."""

import dataclasses
import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from dressage import __version__
from dressage.errors import CheckpointError
from dressage.learning.policy_head import SquashState
from dressage.learning.specs import AgentSpec, ObservationLayout
from dressage.ppo.policy import NormalizeVec, Policy

FORMAT = 1
WEIGHTS = "weights.safetensors"
MANIFEST = "policy.json"


def save_policy(policy: Policy, folder: Path) -> None:
    """Write a policy; the folder appears complete or not at all, and replaces an older one."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    save_file(_tensors(policy), draft / WEIGHTS)
    manifest = {
        "format": FORMAT,
        "dressage": __version__,
        "hidden_activation": policy.hidden_activation,
        "output_activation": policy.output_activation,
        "state_independent_std": policy.state_independent_std,
        "squash": policy.act_scaling is not None and policy.act_scaling.squash,
        "observation_clip": None if policy.obs_scaling is None else policy.obs_scaling.clip,
        "spec": dataclasses.asdict(policy.spec),
        "layout": dataclasses.asdict(policy.layout),
        "sha256": _sha256(draft / WEIGHTS),
    }
    (draft / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
    draft.chmod(0o755)
    _replace(draft, folder)


def load_policy(folder: Path) -> Policy:
    """Read a policy back and verify it.

    Raises:
        CheckpointError: If a file is missing, cut short, altered, or of a newer format.
    """
    manifest = _read_manifest(folder)
    path = folder / WEIGHTS
    if not path.is_file():
        raise CheckpointError(f"The policy {folder} is incomplete: {WEIGHTS} is missing.")
    if _sha256(path) != manifest["sha256"]:
        raise CheckpointError(f"The policy {folder} is damaged: {WEIGHTS} differs from its checksum in {MANIFEST}.")
    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise CheckpointError(f"The policy {folder} is damaged: {WEIGHTS} is no safetensors file.") from error
    return _assemble(manifest, tensors)


def _assemble(manifest: dict[str, Any], tensors: dict[str, np.ndarray]) -> Policy:
    model: dict[str, Any] = {}
    for name, array in tensors.items():
        *parents, leaf = name.split("/")
        node = model
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = jnp.asarray(array)
    moments = model.pop("observation_moments", None)
    spec = AgentSpec(**{name: _tuples(value) for name, value in manifest["spec"].items()})
    scaling = None
    if spec.action_kind == "continuous":
        scaling = SquashState(jnp.array(spec.action_low), jnp.array(spec.action_high), manifest["squash"])
    return Policy(
        act_scaling=scaling,
        obs_scaling=None if moments is None else NormalizeVec(**moments, clip=manifest["observation_clip"]),
        model=model,
        hidden_activation=manifest["hidden_activation"],
        output_activation=manifest["output_activation"],
        state_independent_std=manifest["state_independent_std"],
        spec=spec,
        layout=_layout(manifest["layout"]),
    )


def _tensors(policy: Policy) -> dict[str, np.ndarray]:
    tensors = {
        f"{network}/{path}": array for network, params in policy.model.items() for path, array in _flatten(params)
    }
    if policy.obs_scaling is not None:
        for name in ("mean", "var", "count"):
            tensors[f"observation_moments/{name}"] = getattr(policy.obs_scaling, name)
    # safetensors writes the buffer as it lies in memory, so that any other layout would be corrupted.
    return {name: np.ascontiguousarray(array) for name, array in tensors.items()}


def _flatten(params: dict[str, Any]) -> list[tuple[str, Any]]:
    rows = []
    for name, value in params.items():
        if isinstance(value, dict):
            rows += [(f"{name}/{path}", array) for path, array in _flatten(value)]
        else:
            rows.append((name, value))
    return rows


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        raise CheckpointError(f"There is no policy in {folder}: {MANIFEST} is missing.")
    try:
        manifest: dict[str, Any] = json.loads(path.read_text())
    except ValueError as error:
        raise CheckpointError(f"The policy {folder} is damaged: {MANIFEST} is no JSON.") from error
    if manifest.get("format") != FORMAT:
        raise CheckpointError(
            f"The policy {folder} has format {manifest.get('format')!r}; this version of dressage reads {FORMAT}."
        )
    return manifest


def _layout(fields: dict[str, Any]) -> ObservationLayout:
    parts = tuple((name, _layout(part)) for name, part in fields["parts"])
    values = {name: _tuples(fields[name]) for name in ("kind", "shape", "nvec", "start")}
    return ObservationLayout(**values, parts=parts)


def _tuples(value: Any) -> Any:  # noqa: ANN401 (JSON knows lists only)
    return tuple(value) if isinstance(value, list) else value


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _replace(draft: Path, folder: Path) -> None:
    """Put a finished folder in its place; an older one is moved aside first and removed last."""
    old = draft.with_name(f"{draft.name}-old")
    if folder.exists():
        os.replace(folder, old)
    os.replace(draft, folder)
    shutil.rmtree(old, ignore_errors=True)
