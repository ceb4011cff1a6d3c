"""What runs in a worker's process: it obeys one order after another and ends with its parent."""

import pickle
import signal
import traceback
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from typing import Any

from dressage.errors import DressageError
from dressage.runtime.records import RunSpec
from dressage.runtime.rollout_worker import RolloutWorker
from dressage.runtime.shared_fragments import FragmentWriter
from dressage.tracebacks import told
from dressage.workers.child import end_with_parent

HELLO, COLLECT, REBUILD, STATE, LOAD, QUIT = "hello", "collect", "rebuild", "state", "load", "quit"
NEW_BUFFER = "new buffer"
LONGEST_TRACE = 20_000


def work(pipe: Connection, spec: bytes, index: int, seed: int, slots: int) -> None:
    """Make a worker and obey until told to quit, or until nobody is there to tell.

    Args:
        pipe: Where orders come from and answers go.
        spec: What the worker is made of, pickled.
        index: Its number.
        seed: Seeds it.
        slots: How many fragments lie in its memory at once.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group: the learner decides.
    end_with_parent()
    child = _Child(pipe, spec, index, seed, slots)
    child.make()
    try:
        while child.obey(*pipe.recv()):
            pass
    except EOFError:
        child.close()  # The learner is gone.


class _Child:
    """A worker and its memory, made by the first command."""

    def __init__(self, pipe: Connection, spec: bytes, index: int, seed: int, slots: int) -> None:
        self._pipe = pipe
        self._made_of = spec, index, seed
        self._worker: RolloutWorker | None = None
        self._failure: Exception | None = None
        self._writer = FragmentWriter(slots)
        self._index = index

    def make(self) -> None:
        """Make the worker at once: all of a run start side by side. `HELLO` tells how it went."""
        try:
            self._made()
        except Exception as error:  # noqa: BLE001 (kept for the first command)
            self._failure = error

    def obey(self, command: str, what: Any) -> bool:  # noqa: ANN401
        """Obey one command and answer it; returns false for the last."""
        if command == QUIT:
            self.close()
            return False
        try:
            answer = self._do(command, what)
        except DressageError as error:
            answer = error
        except Exception as error:  # noqa: BLE001 (whatever a policy raises must reach the learner)
            answer = DressageError(f"Worker {self._index} raised {told(error)}")
            answer.add_note("".join(traceback.format_exception(error))[-LONGEST_TRACE:])
        self._pipe.send(answer)
        return True

    def close(self) -> None:
        """Close the environment."""
        if self._worker is not None:
            self._worker.close()

    def _do(self, command: str, what: Any) -> Any:  # noqa: ANN401
        if self._failure is not None:
            raise self._failure
        if command == HELLO:
            return self._made().hello()
        assert self._worker is not None
        if command == COLLECT:
            return self._collect(what)
        if command == REBUILD:
            return self._worker.rebuild(what)
        return self._worker.state() if command == STATE else self._worker.load_state(what)

    def _made(self) -> RolloutWorker:
        if self._worker is None:
            spec, index, seed = self._made_of
            made: RunSpec = pickle.loads(spec)
            self._worker = RolloutWorker(made, index, seed)
        return self._worker

    def _collect(self, order: Any) -> Any:  # noqa: ANN401
        assert self._worker is not None
        parcel, is_new = self._writer.write(self._worker.collect(order))
        if is_new:
            self._pipe.send((NEW_BUFFER, parcel.size))
            send_handle(self._pipe, self._writer.descriptor, None)
        return parcel
