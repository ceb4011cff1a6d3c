"""A policy on disk: weights in safetensors, all else in JSON with checksums; nothing in it is executed."""

import dataclasses
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load, save

from dressage import __version__
from dressage.errors import CheckpointError
from dressage.learning.policy_head import SquashState
from dressage.learning.specs import AgentSpec, ObservationLayout
from dressage.ppo.policy import NormalizeVec, Policy

FORMAT = 1
MANIFEST = "policy.json"


def save_policy(policy: Policy, folder: Path) -> None:
    """Write a policy into a folder, whose other files stay.

    The weights' file is named by its content, and the manifest, which names it, is put in place in one step: killed
    at any moment, the folder holds the policy that was there before or this one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    content = save(_tensors(policy))
    checksum = hashlib.sha256(content).hexdigest()
    weights = f"weights-{checksum[:12]}.safetensors"
    description = {
        "format": FORMAT,
        "dressage": __version__,
        "hidden_activation": policy.hidden_activation,
        "output_activation": policy.output_activation,
        "state_independent_std": policy.state_independent_std,
        "squash": policy.act_scaling is not None and policy.act_scaling.squash,
        "observation_clip": None if policy.obs_scaling is None else policy.obs_scaling.clip,
        "spec": dataclasses.asdict(policy.spec),
        "layout": dataclasses.asdict(policy.layout),
        "weights": weights,
        "weights_sha256": checksum,
    }
    manifest = description | {"sha256": _description_checksum(description)}
    _write_whole(folder / weights, content)
    _write_whole(folder / MANIFEST, (json.dumps(manifest, indent=2) + "\n").encode())
    for old in folder.glob("weights-*.safetensors"):
        if old.name != weights:
            old.unlink()


def load_policy(folder: Path) -> Policy:
    """Read a policy back and verify it.

    Raises:
        CheckpointError: If a file is missing, cut short, altered, or of a newer format.
    """
    manifest = _read_manifest(folder)
    path = folder / manifest["weights"]
    if not path.is_file():
        raise CheckpointError(f"The policy {folder} is incomplete: {path.name} is missing.")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != manifest["weights_sha256"]:
        raise CheckpointError(
            f"The policy {folder} is damaged: {path.name} differs from its checksum in {MANIFEST}."
        )
    return _assemble(manifest, load(content))


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
    tensors = dict(_flatten(policy.model))
    if policy.obs_scaling is not None:
        for name in ("mean", "var", "count"):
            tensors[f"observation_moments/{name}"] = getattr(policy.obs_scaling, name)
    # safetensors writes the buffer as it lies in memory, so that any other layout would be corrupted.
    return {name: np.asarray(array, order="C") for name, array in tensors.items()}


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
        manifest: Any = json.loads(path.read_text())
    except ValueError as error:
        raise CheckpointError(f"The policy {folder} is damaged: {MANIFEST} is no JSON.") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        found = manifest.get("format") if isinstance(manifest, dict) else None
        raise CheckpointError(
            f"The policy {folder} has format {found!r}; this version of dressage reads {FORMAT}."
        )
    description = {name: value for name, value in manifest.items() if name != "sha256"}
    if _description_checksum(description) != manifest.get("sha256"):
        raise CheckpointError(f"The policy {folder} is damaged: {MANIFEST} differs from its own checksum.")
    return description


def _layout(fields: dict[str, Any]) -> ObservationLayout:
    parts = tuple((name, _layout(part)) for name, part in fields["parts"])
    values = {name: _tuples(fields[name]) for name in ("kind", "shape", "nvec", "start")}
    return ObservationLayout(**values, parts=parts)


def _tuples(value: Any) -> Any:  # noqa: ANN401 (JSON knows lists only)
    return tuple(value) if isinstance(value, list) else value


def _description_checksum(description: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()


def _write_whole(path: Path, content: bytes) -> None:
    """Write a file that appears complete or not at all."""
    draft = path.with_name(f".{path.name}.draft")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
