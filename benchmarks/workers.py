"""The runner's half of a measurement: start a worker in its environment, ask for runs, stop it.

The other half, and what the two say to each other, is in `peers/protocol.py`.
"""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from peer_environments import HERE, python_of

Numbers = dict[str, Any]
QUIET_TENSORFLOW = {"TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONWARNINGS": "ignore"}


class WorkerError(RuntimeError):
    """A worker ended without the answer that was due; the message has the end of what it wrote."""


class Worker:
    """A running worker; use it in a `with` statement.

    Attributes:
        prepared: What it reported when it was ready: times to import, trace and compile, versions.
    """

    def __init__(self, script: str, environment: str, settings: Numbers) -> None:
        """Start the worker and wait until it is ready.

        Args:
            script: File name of the worker in `benchmarks/peers`.
            environment: The peer whose virtual environment runs it.
            settings: What the worker is to do; see its own text.

        Raises:
            WorkerError: If it ends instead of getting ready.
        """
        self._name = script
        self._log = tempfile.TemporaryFile("w+")
        path = HERE / "peers" / script
        command = [str(python_of(environment)), str(path), json.dumps(settings)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={
                **os.environ,
                **QUIET_TENSORFLOW,
                "PYTHONPATH": str(_package_root()) if environment == "dressage" else "",
            },
        )
        self.prepared = self._answer()

    def run(self, seed: int) -> Numbers:
        """Have it train once; returns `seconds`, `steps` and what else it reports."""
        return self._ask({"seed": seed})

    def stop(self) -> Numbers:
        """End it; returns its peak memory."""
        numbers = self._ask({"stop": True})
        self._process.wait()
        return numbers

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _ask(self, request: Numbers) -> Numbers:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Numbers:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._log.seek(0)
            tail = "".join(self._log.readlines()[-15:])
            raise WorkerError(f"{self._name} ended with code {self._process.returncode}:\n{tail}")
        numbers: Numbers = json.loads(line)
        return numbers


def _package_root() -> Path:
    """Return the folder that holds the package, so that a checkout need not be installed."""
    return HERE.parent
