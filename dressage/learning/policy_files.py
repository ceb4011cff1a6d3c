"""A policy in one file: weights and description in a safetensors container that carries its own checksum.

The description is JSON in the container's metadata. Its `sha256` is that of the whole file with these 64
characters set to zero, so that a changed byte anywhere is found. Nothing in a file is executed.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dressage import __version__
from dressage.errors import CheckpointError, ConfigError
from dressage.whole_files import whole_file

FORMAT = 1
FILE = "policy.safetensors"
UNSEALED = "0" * 64
# The checksum as it stands in JSON, and in JSON within JSON.
_SEAL = re.compile(rb'\\?"sha256\\?":\\?"([0-9a-f]{64})\\?"')


def write_policy_file(path: Path, description: Mapping[str, Any], tensors: Mapping[str, Any]) -> None:
    """Write a policy so that the file is the old one or the new one at every moment.

    Args:
        path: The file.
        description: Anything that JSON holds.
        tensors: Arrays by name.
    """
    write_whole(path, pack(description, tensors))


def read_policy_file(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read and check what `write_policy_file` wrote.

    Returns:
        The description and the tensors.

    Raises:
        CheckpointError: If the file is missing, cut short, altered, of another format or no policy.
    """
    if not path.is_file():
        raise CheckpointError(f"There is no policy at {path}.")
    return unpack(path.read_bytes(), str(path))


def pack(description: Mapping[str, Any], tensors: Mapping[str, Any]) -> bytes:
    """Lay a policy out as the bytes of its file."""
    from safetensors.numpy import save  # Not needed on a robot, which reads other files by this module.

    # safetensors writes the buffer as it lies in memory, so that any other layout would be corrupted.
    arrays = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    return seal(save(arrays, metadata={"dressage": describe(description)}))


def unpack(content: bytes, path: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Check the bytes of a policy's file and take them apart; see `read_policy_file`."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    check_seal(content, path)
    if content[8:9] != b"{":
        raise CheckpointError(f"{path} is no safetensors file, whatever its name says.")
    try:
        size = int.from_bytes(content[:8], "little")
        metadata = json.loads(content[8 : 8 + size])["__metadata__"]
        return read_description(metadata["dressage"], path), load(content)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is no policy of dressage: {error}.") from error


def describe(description: Mapping[str, Any]) -> str:
    """Write a description as JSON, with a place for the checksum."""
    head = {"sha256": UNSEALED, "format": FORMAT, "dressage": __version__}
    whole = {**head, **description, "sha256": UNSEALED}
    return json.dumps(whole, allow_nan=False, separators=(",", ":"))


def read_description(text: str, path: str) -> dict[str, Any]:
    """Read a description.

    Raises:
        CheckpointError: If it is of another format.
    """
    description: dict[str, Any] = json.loads(text)
    if description["format"] != FORMAT:
        raise CheckpointError(
            f"The policy {path} has format {description['format']!r}; this version of dressage reads "
            f"{FORMAT}."
        )
    return description


def seal(content: bytes) -> bytes:
    """Put the checksum of a file's bytes into its description."""
    return content.replace(UNSEALED.encode(), hashlib.sha256(content).hexdigest().encode(), 1)


def check_seal(content: bytes, path: str) -> None:
    """Refuse a file that was cut or altered since it was sealed.

    Raises:
        CheckpointError: If it was, or if it holds no policy at all; nothing in it has been interpreted then.
    """
    found = _SEAL.search(content)
    if found is None:
        raise CheckpointError(
            f"{path} is no policy of dressage: it carries no checksum, perhaps since it was cut."
        )
    start, end = found.span(1)
    blank = content[:start] + UNSEALED.encode() + content[end:]
    if hashlib.sha256(blank).hexdigest().encode() != found[1]:
        raise CheckpointError(f"The policy {path} is damaged: its content differs from its checksum.")


def weights_digest(weights: Mapping[str, np.ndarray]) -> str:
    """Return a hash of names, shapes and numbers, which is the same whatever file they stand in."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        array = np.ascontiguousarray(weights[name])
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode() + array.tobytes())
    return digest.hexdigest()


def safe_names(names: Sequence[str]) -> dict[str, str]:
    """Make a file's name of each name, with a dash where a file system may object.

    Raises:
        ConfigError: If two names come out equal.
    """
    safe = {name: re.sub(r"[^\w.-]", "-", name) for name in names}
    taken: dict[str, str] = {}
    for name, file in safe.items():
        if file in taken:
            raise ConfigError(f"{taken[file]!r} and {name!r} would both be written to {file}.")
        taken[file] = name
    return safe


def write_whole(path: Path, content: bytes) -> None:
    """Write a file that appears complete or not at all; folders above it are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as draft:
        draft.write_bytes(content)
