"""Checkpoints of a run: the policy's own file, and beside it all that the engine and its workers go on from.

A checkpoint is a folder. It is written under another name and renamed when it is complete, so that a run that
is killed at any moment leaves the previous one whole. Nothing in it is a pickle.
"""

import hashlib
import io
import json
import os
import re
import shutil
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from dressage.errors import CheckpointError
from dressage.policy.base_policy import BasePolicy
from dressage.runtime.accounts import Counters
from dressage.runtime.records import WorkerState

FORMAT = 1
POLICY, ARRAYS, DESCRIPTION = "policy.pt", "run.npz", "run.json"
NAME = re.compile(r"update_(\d+)")


@dataclass(frozen=True)
class RunState:
    """What a run goes on from, besides the policy.

    Attributes:
        counters: What became of all steps.
        lives: How often each worker was made anew.
        workers: Each worker's state; None where it is not saved.
        stream: The learner's random stream, `[K]` uint8; None where there is none.
    """

    counters: Counters
    lives: tuple[int, ...]
    workers: tuple[WorkerState | None, ...]
    stream: np.ndarray | None


class RunCheckpoints:
    """The checkpoints of one run.

    Args:
        folder: Where they lie; made when the first is written.
        keep: How many of the latest are kept.
    """

    def __init__(self, folder: Path, keep: int = 3) -> None:
        self._folder = Path(folder)
        self._keep = keep

    def save(self, learner: BasePolicy, state: RunState) -> Path:
        """Write a checkpoint and drop the oldest beyond those to keep."""
        path = self._folder / f"update_{learner.version:08d}"
        draft = path.with_name(path.name + ".part")
        shutil.rmtree(draft, ignore_errors=True)
        write_checkpoint(draft, learner, state)
        shutil.rmtree(path, ignore_errors=True)
        os.replace(draft, path)
        _sync(self._folder)
        for old in self._complete()[: -self._keep]:
            shutil.rmtree(old)
        return path

    def newest(self) -> Path:
        """Return the newest complete checkpoint.

        Raises:
            CheckpointError: If there is none.
        """
        complete = self._complete()
        if not complete:
            raise CheckpointError(f"There is no complete checkpoint in {self._folder}.")
        return complete[-1]

    def _complete(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        return sorted(path for path in self._folder.iterdir() if NAME.fullmatch(path.name))


def write_checkpoint(path: Path, learner: BasePolicy, state: RunState) -> None:
    """Write a checkpoint into a new folder and onto the disk.

    Args:
        path: The folder; must not exist yet.
        learner: In the TRAIN role.
        state: The rest.
    """
    path.mkdir(parents=True)
    learner.save_checkpoint(path / POLICY, {})
    with (path / ARRAYS).open("wb") as file:
        _write_arrays(file, _arrays_of(state))
    (path / DESCRIPTION).write_text(json.dumps(_described(state, path), indent=2) + "\n")
    for file_path in path.iterdir():
        _sync(file_path)


def read_checkpoint(path: Path, learner: BasePolicy, workers: int) -> RunState:
    """Read a checkpoint: the policy into `learner`, the rest is returned.

    Raises:
        CheckpointError: If it is incomplete, altered, or made for another number of workers.
    """
    description = _description(path)
    if len(description["lives"]) != workers:
        raise CheckpointError(
            f"The checkpoint {path} is of a run with {len(description['lives'])} workers, this one has "
            f"{workers}. Resume with as many, or start a new run from its {POLICY}."
        )
    learner.load_checkpoint(path / POLICY)
    with np.load(path / ARRAYS, allow_pickle=False) as stored:
        arrays = dict(stored)
    states = tuple(_worker_of(arrays, worker) for worker in range(workers))
    counters = Counters(**description["counters"])
    return RunState(counters, tuple(description["lives"]), states, arrays.get("stream"))


def _arrays_of(state: RunState) -> dict[str, np.ndarray]:
    arrays = {} if state.stream is None else {"stream": state.stream}
    for index, worker in enumerate(state.workers):
        if worker is None or worker.environment is None:
            continue
        parts: Mapping[str, Mapping[str, np.ndarray]] = {
            "environment": worker.environment,
            "policy": worker.policy,
            "own": {"stream": worker.stream, "episodes": worker.episodes},
        }
        for part, named in parts.items():
            arrays |= {f"{index}/{part}/{name}": np.asarray(array) for name, array in named.items()}
    return arrays


def _write_arrays(file: BinaryIO, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an archive that `np.load` reads; names may be paths."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, np.asarray(array), allow_pickle=False)
            archive.writestr(f"{name}.npy", content.getbuffer())


def _worker_of(arrays: Mapping[str, np.ndarray], worker: int) -> WorkerState | None:
    own = _below(arrays, f"{worker}/own/")
    if not own:
        return None
    environment = _below(arrays, f"{worker}/environment/")
    return WorkerState(environment, _below(arrays, f"{worker}/policy/"), own["stream"], own["episodes"])


def _below(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}


def _described(state: RunState, folder: Path) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "counters": asdict(state.counters),
        "lives": list(state.lives),
        "sha256": {name: _digest(folder / name) for name in (POLICY, ARRAYS)},
    }


def _description(path: Path) -> dict[str, Any]:
    try:
        description: dict[str, Any] = json.loads((path / DESCRIPTION).read_text())
        digests = description["sha256"]
        found = {name: _digest(path / name) for name in digests}
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"The checkpoint {path} is incomplete: {error}") from error
    if description.get("format") != FORMAT:
        raise CheckpointError(
            f"The checkpoint {path} has format {description.get('format')}; this release reads {FORMAT}."
        )
    damaged = sorted(name for name in digests if digests[name] != found[name])
    if damaged:
        raise CheckpointError(f"The checkpoint {path} is damaged: {damaged[0]} differs from its checksum.")
    return description


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _sync(path: Path) -> None:
    """Have the operating system put a file or folder onto the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
