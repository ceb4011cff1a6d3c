"""A policy on disk: weights in safetensors, all else in JSON with checksums; nothing in it is executed."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from dressage import __version__
from dressage.errors import CheckpointError

FORMAT = 1
MANIFEST = "policy.json"


def write_files(folder: Path, description: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
    """Write a policy's description and weights into a folder, whose other files stay.

    The weights' file is named by its content, and the manifest, which names it, is put in place in one step:
    killed at any moment, the folder holds the policy that was there before or this one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # safetensors writes the buffer as it lies in memory, so that any other layout would be corrupted.
    content = save({name: np.asarray(array, order="C") for name, array in tensors.items()})
    checksum = hashlib.sha256(content).hexdigest()
    weights = f"weights-{checksum[:12]}.safetensors"
    description = {"format": FORMAT, "dressage": __version__} | description
    description |= {"weights": weights, "weights_sha256": checksum}
    manifest = description | {"sha256": _description_checksum(description)}
    _write_whole(folder / weights, content)
    _write_whole(folder / MANIFEST, (json.dumps(manifest, indent=2) + "\n").encode())
    for old in folder.glob("weights-*.safetensors"):
        if old.name != weights:
            old.unlink()


def read_files(folder: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read and verify what `write_files` wrote.

    Returns:
        The description and the weights by name.

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
    return manifest, load(content)


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
