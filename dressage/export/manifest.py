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
    files = {}
    for agent, (file, flaw) in check_manifest(path).items():
        if flaw:
            state = "damaged" if file.is_file() else "incomplete"
            raise CheckpointError(f"The policies in {folder} are {state}: {flaw}.")
        files[agent] = file
    return files


def check_manifest(path: Path) -> dict[str, tuple[Path, str]]:
    """Return the file of each agent and what is wrong with it; empty for nothing.

    Raises:
        CheckpointError: If the manifest itself is altered or none.
    """
    return {agent: (file, _flaw_of(file, digest)) for agent, (file, digest) in listed_files(path).items()}


def listed_files(path: Path) -> dict[str, tuple[Path, str]]:
    """Return the file of each agent, which may be missing, and the checksum that it should have.

    Raises:
        CheckpointError: If the manifest itself is altered or none.
    """
    content = path.read_bytes()
    check_seal(content, str(path))
    agents = read_description(content.decode(), str(path)).get("agents")
    if not isinstance(agents, dict):
        raise CheckpointError(f"{path} lists no policies of agents.")
    return {agent: (path.parent / entry["file"], entry["sha256_of_file"]) for agent, entry in agents.items()}


def _flaw_of(file: Path, digest: str) -> str:
    if not file.is_file():
        return f"{file.name} is missing"
    if hashlib.sha256(file.read_bytes()).hexdigest() != digest:
        return f"{file.name} differs from its checksum in {MANIFEST}"
    return ""
