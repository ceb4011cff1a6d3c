"""Owns the lock that keeps two processes from training into one run directory.

The operating system holds it, so that it ends with its process, however that ends: nothing stale stays.
"""

import errno
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO

from dressage.errors import ConfigError, DressageError

LOCK = ".lock"
"""The file's name; it stays when the lock ends, since removing it would let two processes in at once."""

BEYOND = 1 << 30
"""Where the locked byte lies, far beyond the file's end: Windows lets nobody read a byte that is locked."""

HELD = {errno.EACCES, errno.EAGAIN, errno.EDEADLK}
"""How systems say that another process holds the lock; see `fcntl` and `_locking`."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a run directory, which must exist.

    Raises:
        ConfigError: If another process holds it, or the directory cannot be written to.
        DressageError: If the file system has no locks.
    """
    path = folder / LOCK
    try:
        file = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise ConfigError(_unwritable(folder, error)) from error
    with file:
        try:
            _take(file)
        except OSError as error:
            raise _refusal(folder, file, error) from error
        _sign(file)
        yield
        file.truncate(0)


def make_folder(path: Path) -> None:
    """Make a directory and those above it.

    Raises:
        ConfigError: If it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(_unwritable(path, error)) from error


def _unwritable(folder: Path, error: OSError) -> str:
    return f"The run cannot be written to {folder}: {error.strerror}. Give another folder with --run."


def _take(file: IO[str]) -> None:
    if sys.platform == "win32":
        import msvcrt

        file.seek(BEYOND)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        # Unlike flock's, such a lock is not handed on to forked workers, which may outlive a killed process.
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, BEYOND)


def _sign(file: IO[str]) -> None:
    """Write down who holds the lock, for the text that refuses others."""
    now = datetime.now().isoformat(" ", timespec="seconds")
    file.truncate(0)
    file.write(json.dumps({"process": os.getpid(), "host": socket.gethostname(), "since": now}))
    file.flush()


def _refusal(folder: Path, file: IO[str], error: OSError) -> DressageError:
    if error.errno not in HELD:
        return DressageError(
            f"{folder} cannot be locked ({error.strerror}); give a folder on another file system with --run."
        )
    return ConfigError(
        f"{folder} is being trained by {_holder(file)}. "
        "Wait for it, stop it, or give another folder with --run."
    )


def _holder(file: IO[str]) -> str:
    file.seek(0)
    try:
        holder = json.loads(file.read())
    except json.JSONDecodeError:
        return "another process"  # It has taken the lock and not signed yet.
    return f"process {holder['process']} on {holder['host']}, since {holder['since']}"
