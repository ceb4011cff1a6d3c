"""Owns the list of one file for each agent, with checksums."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from dressage.errors import CheckpointError
from dressage.learning.policy_files import check_seal, describe, read_description, seal, write_whole

MANIFEST = "policies.json"


def write_manifest(folder: Path, paths: Mapping[str, Path]) -> None:
    """Write the manifest of files that are in place."""
    listed = {
        agent: {"file": path.name, "sha256_of_file": hashlib.sha256(path.read_bytes()).hexdigest()}
        for agent, path in paths.items()
    }
    write_whole(folder / MANIFEST, seal(describe({"agents": listed}).encode()))


def read_manifest(folder: Path) -> dict[str, Path]:
    """Return the file of each agent.

    Raises:
        CheckpointError: If manifest or a file is missing or altered.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise CheckpointError(f"There are no policies in {folder}: {MANIFEST} is missing.")
    content = path.read_bytes()
    check_seal(content, str(path))
    files = {}
    for agent, entry in read_description(content.decode(), str(path))["agents"].items():
        files[agent] = folder / entry["file"]
        if not files[agent].is_file():
            raise CheckpointError(f"The policies in {folder} are incomplete: {entry['file']} is missing.")
        if hashlib.sha256(files[agent].read_bytes()).hexdigest() != entry["sha256_of_file"]:
            raise CheckpointError(
                f"The policies in {folder} are damaged: {entry['file']} differs from its checksum "
                f"in {MANIFEST}."
            )
    return files
