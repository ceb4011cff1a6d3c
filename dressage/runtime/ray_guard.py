"""Ends what is left of a local Ray cluster when the learner that started it is killed.

Ray's own processes die with their parent, but for two helpers that try for a minute to report it to a head
which is gone. This runs as a script of its own, without any package, beside the learner: it notes the
children of the cluster's raylet, waits for the end of its input, which comes with the learner's, and ends
those still there.
"""

import os
import select
import signal
import sys
from pathlib import Path

LOOK_AGAIN_AFTER = 5.0
"""Seconds between two looks at the raylet's children."""

Process = tuple[int, str]
"""A process id with the moment it started, which tells it from a later process of the same id."""


def guard(learner: int, lifeline: int) -> None:
    """Wait until the lifeline closes, then end what the learner's raylet had started.

    Args:
        learner: Process id of the learner.
        lifeline: A descriptor that the learner alone keeps open.
    """
    known: set[Process] = set()
    while not select.select([lifeline], [], [], LOOK_AGAIN_AFTER if known else 0.5)[0]:
        known |= raylet_children(learner)
    for pid, started in known:
        if _started(pid) == started:
            _end(pid)


def raylet_children(learner: int) -> set[Process]:
    """Return all processes beneath the raylet that a learner started."""
    parents = {pid: parent for pid in _pids() if (parent := _parent(pid)) is not None}
    beneath = {pid for pid, parent in parents.items() if parent == learner and b"raylet" in _command(pid)}
    found: set[int] = set()
    while beneath:
        beneath = {pid for pid, parent in parents.items() if parent in beneath}
        found |= beneath
    return {(pid, started) for pid in found if (started := _started(pid)) is not None}


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _parent(pid: int) -> int | None:
    fields = _fields(pid)
    return int(fields[1]) if fields else None


def _started(pid: int) -> str | None:
    fields = _fields(pid)
    return fields[19] if fields else None


def _fields(pid: int) -> list[str] | None:
    """Return the fields of `/proc/PID/stat` from the state on, or None where there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0]
    except OSError:
        return b""


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # It ended by itself just now.


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    guard(int(sys.argv[1]), sys.stdin.fileno())
