"""The lock of a run directory: one process at a time, and nothing stale after a kill."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from dressage.errors import ConfigError, DressageError
from dressage.reporting import run_lock
from dressage.reporting.run_lock import LOCK, locked, make_folder

HOLDER = """
import sys
from pathlib import Path
from pathlib import Path
from dressage.reporting.run_lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the lock until its input is closed."""
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process


def test_a_second_process_is_refused_with_process_and_host_of_the_first(tmp_path, holder):
    first = f"is being trained by process {holder.pid} on {socket.gethostname()}, since 2"
    with pytest.raises(ConfigError, match=first), locked(tmp_path):
        pytest.fail("the lock was given twice")


def test_the_lock_is_free_once_its_process_has_ended(tmp_path, holder):
    holder.communicate("")
    with locked(tmp_path):
        assert json.loads((tmp_path / LOCK).read_text(encoding="utf-8"))["process"] == os.getpid()
    assert (tmp_path / LOCK).read_text(encoding="utf-8") == ""


def test_a_killed_process_leaves_no_lock_behind(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with locked(tmp_path):
        assert json.loads((tmp_path / LOCK).read_text(encoding="utf-8"))["process"] == os.getpid()


def test_a_folder_that_cannot_be_written_to_is_refused_with_the_reason():
    for path in ("/proc/x", "/dev/null/x"):
        with pytest.raises(ConfigError, match=f"cannot be written to {path}: .*. Give another folder with"):
            make_folder(Path(path))
    with pytest.raises(ConfigError, match="cannot be written to /proc: "), locked(Path("/proc")):
        pytest.fail("a lock in /proc")


def test_a_file_system_without_locks_is_named(tmp_path, monkeypatch):
    def refuse(file):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(run_lock, "_take", refuse)
    with pytest.raises(DressageError, match=r"cannot be locked \(Function not implemented\); give"):
        with locked(tmp_path):
            pytest.fail("locked without a lock")
