"""Owns where exported policies lie: one file, the files that a manifest lists, all that a folder holds."""

from dataclasses import dataclass
from pathlib import Path

from dressage.errors import CheckpointError, ConfigError
from dressage.export.exporting import FORMATS
from dressage.export.manifest import MANIFEST, listed_files
from dressage.learning.policy_files import read_policy_file

ENDINGS = tuple(f".{name}" for name in FORMATS)
KNOWN = f"policies end in {', '.join(ENDINGS)}; {MANIFEST} lists those of several agents"


@dataclass(frozen=True)
class Exported:
    """What was exported to a place.

    Attributes:
        manifests: Manifests of several agents.
        policies: The files, of which a damaged one is one too.
    """

    manifests: tuple[Path, ...]
    policies: tuple[Path, ...]


def exported_at(path: Path) -> Exported:
    """Find what was exported to a place.

    Args:
        path: A policy's file, a manifest, or a folder, with the folders inside it. What training saved there
            for itself, which carries no test, is left out.

    Raises:
        ConfigError: If there is nothing, or nothing that was exported.
    """
    if path.is_dir():
        found = _inside(path)
        if not found.manifests and not found.policies:
            raise ConfigError(
                f"There is no exported policy in {path} ({KNOWN}). Write one with: dressage export RUN"
            )
        return found
    if not path.exists():
        raise ConfigError(f"There is no policy at {path}.")
    if path.name == MANIFEST:
        return Exported((path,), _listed(path))
    if path.suffix not in ENDINGS:
        raise ConfigError(f"{path} is neither a policy nor a list of them: {KNOWN}.")
    return Exported((), (path,))


def _inside(folder: Path) -> Exported:
    manifests: list[Path] = []
    policies: list[Path] = []
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink():  # A link may lead back up.
            inner = _inside(path)
            manifests += inner.manifests
            policies += inner.policies
        elif path.name == MANIFEST:
            manifests.append(path)
        elif path.suffix in ENDINGS and path.is_file() and not _saved_by_training(path):
            policies.append(path)
    return Exported(tuple(manifests), tuple(policies))


def _listed(manifest: Path) -> tuple[Path, ...]:
    try:
        files = listed_files(manifest).values()
    except CheckpointError:
        return ()  # Whoever checks the manifest says so.
    return tuple(file for file, _ in files if file.is_file())


def _saved_by_training(path: Path) -> bool:
    """Whether a file is whole and carries no test."""
    if path.suffix != ".safetensors":
        return False
    try:
        return "test" not in read_policy_file(path)[0]
    except CheckpointError:
        return False
