"""Checkpoints of training: written whole or not at all, the last few kept, verified when they are read.

Orbax writes into a temporary folder and renames it when complete. Beside the arrays stands a description with
the digest of every array and of itself, so that a file cut or altered since is refused by name instead
of training on. All arrays are stored as one of bytes: a damaged file then fails a single read, while Orbax's
concurrent reads of many arrays would print a stack for each.
"""

import hashlib
import json
import logging
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from dressage.errors import CheckpointError

State = TypeVar("State")

Arrays = dict[str, np.ndarray]


class Checkpoints:
    """The checkpoints of one run.

    Attributes:
        folder: Where they lie, one folder a step.
    """

    def __init__(self, folder: str | Path, keep: int = 3) -> None:
        """Open a folder of checkpoints; it need not exist yet.

        Args:
            folder: Where they lie.
            keep: How many of the latest to keep, at least 1.
        """
        logging.getLogger("absl").setLevel(logging.ERROR)  # Orbax reports each step of each save otherwise.
        self.folder = Path(folder).absolute()
        options = ocp.CheckpointManagerOptions(
            max_to_keep=keep, enable_async_checkpointing=False, create=True
        )
        self._manager = ocp.CheckpointManager(self.folder, options=options)

    def save(self, step: int, state: Any, note: dict[str, Any]) -> None:  # noqa: ANN401 (any tree of arrays)
        """Write a checkpoint; one of the same step is left as it is.

        Args:
            step: What the checkpoint is named by, for instance the number of updates.
            state: Any pytree of arrays and typed random keys.
            note: A small JSON-able dictionary to keep beside it.
        """
        if step in self._manager.all_steps():
            return
        arrays = named_arrays(state)
        described = {path: _describe(array) for path, array in arrays.items()}
        content: dict[str, Any] = {"note": note, "arrays": described}
        content["sha256"] = _content_digest(content)
        stored = {"bytes": _join(arrays)}
        self._manager.save(
            step,
            args=ocp.args.Composite(state=ocp.args.StandardSave(stored), content=ocp.args.JsonSave(content)),
        )
        self._manager.wait_until_finished()

    def latest(self) -> int | None:
        """Return the step of the newest complete checkpoint, or None."""
        step: int | None = self._manager.latest_step()
        return step

    def steps(self) -> tuple[int, ...]:
        """Return the steps of all checkpoints that are kept, oldest first; damaged ones may be among them."""
        return tuple(sorted(self._manager.all_steps()))

    def discard_after(self, step: int) -> None:
        """Remove the checkpoints of later steps, which training from `step` on makes again."""
        for later in (found for found in self.steps() if found > step):
            self._manager.delete(later)

    def restore(self, state_like: State, step: int | None = None) -> tuple[State, dict[str, Any]]:
        """Read a checkpoint back.

        Args:
            state_like: A state of the same structure, shapes and dtypes; its values do not matter.
            step: Which checkpoint; the newest by default.

        Returns:
            The state and the note.

        Raises:
            CheckpointError: If there is none, it is incomplete or altered, or it was made for another run.
        """
        chosen, path = self._chosen(step)
        content = self._read_content(chosen, path)
        wanted = named_arrays(state_like)
        _compare_layout(wanted, content["arrays"], path)
        arrays = self._verified(chosen, path, wanted, content["arrays"])
        return rebuild_state(state_like, arrays), content["note"]

    def read(self, step: int | None = None) -> tuple[Arrays, dict[str, Any]]:
        """Read a checkpoint without knowing its structure.

        Args:
            step: Which checkpoint; the newest by default.

        Returns:
            The arrays by name (see `named_arrays`), and the note.

        Raises:
            CheckpointError: If there is none, or it is incomplete or altered.
        """
        chosen, path = self._chosen(step)
        content = self._read_content(chosen, path)
        described = content["arrays"]
        wanted = {
            name: np.empty(array["shape"], jnp.dtype(array["dtype"])) for name, array in described.items()
        }
        return self._verified(chosen, path, wanted, described), content["note"]

    def close(self) -> None:
        """Release Orbax's threads."""
        self._manager.close()

    def _chosen(self, step: int | None) -> tuple[int, Path]:
        chosen = self.latest() if step is None else step
        if chosen is None:
            raise CheckpointError(f"There is no complete checkpoint in {self.folder}.")
        return chosen, self.folder / str(chosen)

    def _verified(self, step: int, path: Path, wanted: Arrays, described: dict[str, Any]) -> Arrays:
        arrays = self._read_arrays(step, path, wanted)
        for name, array in arrays.items():
            if _digest(array) != described[name]["sha256"]:
                raise CheckpointError(
                    f"The checkpoint {path} is damaged: array {name!r} differs from its checksum."
                )
        return arrays

    def _read_content(self, step: int, path: Path) -> dict[str, Any]:
        try:
            restored = self._manager.restore(step, args=ocp.args.Composite(content=ocp.args.JsonRestore()))
            content: dict[str, Any] = restored["content"]
            digest = content["sha256"]
        except Exception as error:
            raise CheckpointError(
                f"The checkpoint {path} is incomplete: its description cannot be read."
            ) from error
        if _content_digest(content) != digest:
            raise CheckpointError(
                f"The checkpoint {path} is damaged: its description differs from its checksum."
            )
        return content

    def _read_arrays(self, step: int, path: Path, wanted: Arrays) -> Arrays:
        target = {"bytes": np.zeros(sum(array.nbytes for array in wanted.values()), np.uint8)}
        try:
            restored = self._manager.restore(
                step, args=ocp.args.Composite(state=ocp.args.StandardRestore(target))
            )
            return _cut(np.asarray(restored["state"]["bytes"]), wanted)
        except Exception as error:
            raise CheckpointError(
                f"The checkpoint {path} is incomplete: its arrays cannot be read."
            ) from error


def named_arrays(state: Any) -> Arrays:  # noqa: ANN401
    """Flatten a state to NumPy arrays by name: its path, with a slash between parts; keys become bits."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {_name(path): np.asarray(_raw(leaf)) for path, leaf in leaves}


def rebuild_state(state_like: State, arrays: Arrays) -> State:
    """Give arrays by name the structure of a state."""

    def place(path: Any, leaf: Any) -> Any:  # noqa: ANN401
        array = arrays[_name(path)]
        if _is_key(leaf):
            return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf))
        return jnp.asarray(array) if isinstance(leaf, jax.Array) else array

    rebuilt: State = jax.tree_util.tree_map_with_path(place, state_like)
    return rebuilt


def _join(arrays: Arrays) -> np.ndarray:
    """Lay the bytes of all arrays end to end, in the order of their names."""
    return np.frombuffer(b"".join(arrays[name].tobytes() for name in sorted(arrays)), np.uint8)


def _cut(stored: np.ndarray, wanted: Arrays) -> Arrays:
    """Give the arrays back, with the shapes and dtypes of those wanted."""
    names = sorted(wanted)
    parts = np.split(stored, np.cumsum([wanted[name].nbytes for name in names])[:-1])
    pairs = zip(names, parts, strict=True)
    return {name: part.view(wanted[name].dtype).reshape(wanted[name].shape) for name, part in pairs}


def _compare_layout(wanted: Arrays, found: dict[str, dict[str, Any]], path: Path) -> None:
    lacking, extra = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
    if lacking or extra:
        raise CheckpointError(
            f"The checkpoint {path} was made for another run: it lacks {lacking or 'nothing'} and has "
            f"{extra or 'nothing'} besides. Resume with the task and options that it was made with."
        )
    for name, array in wanted.items():
        here, there = _layout(array), (tuple(found[name]["shape"]), found[name]["dtype"])
        if here != there:
            raise CheckpointError(
                f"The checkpoint {path} was made for another run: array {name!r} is "
                f"{there[1]}{list(there[0])} there, but {here[1]}{list(here[0])} is needed. "
                "Resume with the task and options that it was made with."
            )


def _layout(array: np.ndarray) -> tuple[tuple[int, ...], str]:
    return array.shape, str(array.dtype)


def _describe(array: np.ndarray) -> dict[str, Any]:
    shape, dtype = _layout(array)
    return {"shape": list(shape), "dtype": dtype, "sha256": _digest(array)}


def _content_digest(content: dict[str, Any]) -> str:
    """Digest note and descriptions, as JSON gives them back."""
    covered = {"note": content.get("note"), "arrays": content.get("arrays")}
    return hashlib.sha256(json.dumps(covered, sort_keys=True).encode()).hexdigest()


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def _name(path: Any) -> str:  # noqa: ANN401
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _raw(leaf: Any) -> Any:  # noqa: ANN401
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _is_key(leaf: Any) -> bool:  # noqa: ANN401
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
