"""Workers in spawned processes of this machine; what they collect lies in memory that both sides share."""

import multiprocessing
import time
from collections import deque
from multiprocessing import connection
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import ForkingPickler, recv_handle
from typing import Any

from dressage.errors import ConfigError, DressageError, WorkerLostError
from dressage.runtime.config import RuntimeConfig
from dressage.runtime.process_child import COLLECT, HELLO, LOAD, NEW_BUFFER, QUIT, REBUILD, STATE, work
from dressage.runtime.records import Delivery, Hello, Order, RunSpec, WorkerState
from dressage.runtime.shared_fragments import FragmentReader, Parcel
from dressage.workers.processes import PATIENCE, exit_words, worker_environment


class ProcessTransport:
    """A `Transport` over spawned processes.

    Args:
        spec: What workers are made of; it must be something that pickle can send.
        config: Time-outs, and how many fragments may wait.

    Raises:
        ConfigError: If `spec` can't be sent.
    """

    travelling_stream = True
    in_process = False

    def __init__(self, spec: RunSpec, config: RuntimeConfig) -> None:
        self._spec = pickled(spec)
        self._config = config
        ahead = config.max_lag if spec.policy_config.rollout_mode == "async" else 0
        self._slots = 2 + ahead
        self._workers: dict[int, _Worker] = {}
        self._arrived: deque[Delivery] = deque()

    def start(self, worker: int, seed: int) -> None:
        """Spawn a process, in place of the worker's last."""
        if worker in self._workers:
            self._workers.pop(worker).end()
        self._workers[worker] = _Worker(worker, self._spec, seed, self._slots)

    def hello(self, worker: int) -> Hello:
        """Wait until a worker has made its environment and its policy."""
        hello: Hello = self._workers[worker].ask(HELLO, None, self._config.start_timeout_s, "starting")
        return hello

    def request(self, worker: int, order: Order) -> None:
        """Have a worker collect a fragment."""
        try:
            self._workers[worker].tell(COLLECT, order, self._config.timeout_s)
        except WorkerLostError as error:
            self._arrived.append(Delivery(worker, error=error))

    def receive(self) -> Delivery:
        """Wait for whoever is first; a worker that is late for its fragment is an error."""
        while not self._arrived:
            self._wait()
        return self._arrived.popleft()

    def rebuild(self, worker: int, seed: int) -> None:
        """Have a worker make its environment anew."""
        self._workers[worker].ask(REBUILD, seed, self._config.start_timeout_s, "making its environment anew")

    def state(self, worker: int) -> WorkerState:
        """Return a worker's state."""
        state: WorkerState = self._workers[worker].ask(
            STATE, None, self._config.timeout_s, "saving its state"
        )
        return state

    def load_state(self, worker: int, state: WorkerState) -> None:
        """Have a worker go on from a state."""
        self._workers[worker].ask(LOAD, state, self._config.timeout_s, "loading its state")

    def close(self) -> None:
        """End all processes."""
        workers = list(self._workers.values())
        self._workers = {}
        for worker in workers:
            worker.ask_to_quit()
        for worker in workers:
            worker.end()

    def _wait(self) -> None:
        busy = {one.pipe: one for one in self._workers.values() if one.deadline is not None}
        soonest = min(one.deadline for one in busy.values() if one.deadline is not None)
        ready = connection.wait(list(busy), max(0.0, soonest - time.monotonic()))
        for pipe in ready:
            assert isinstance(pipe, connection.Connection)
            self._arrived.append(busy[pipe].delivery())
        if not ready:
            late = min(busy.values(), key=lambda one: one.deadline or 0.0)
            self._arrived.append(
                Delivery(late.index, error=late.hung("collecting a fragment", self._config.timeout_s))
            )


class _Worker:
    """One process, as the learner sees it.

    Attributes:
        index: Its number.
        pipe: What is said both ways.
        deadline: When the order that it works on must be done, by the monotonic clock; None without one.
    """

    def __init__(self, index: int, spec: bytes, seed: int, slots: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.index = index
        self.pipe, far_end = context.Pipe()
        self.deadline: float | None = None
        self._reader = FragmentReader()
        self._process: SpawnProcess | None = context.Process(
            target=work,
            args=(far_end, spec, index, seed, slots),
            name=f"dressage-rollouts-{index}",
            daemon=True,
        )
        with worker_environment():
            self._process.start()
        self._pid = self._process.pid
        far_end.close()

    def tell(self, command: str, what: Any, timeout: float) -> None:  # noqa: ANN401
        """Send a command and note when it must be done."""
        try:
            self.pipe.send((command, what))
        except OSError as error:
            raise self._lost("waiting for orders") from error
        self.deadline = time.monotonic() + timeout

    def ask(self, command: str, what: Any, timeout: float, doing: str) -> Any:  # noqa: ANN401
        """Send a command and return its answer.

        Raises:
            WorkerLostError: If the process ends or is late.
        """
        self.tell(command, what, timeout)
        if not self.pipe.poll(timeout):
            raise self.hung(doing, timeout)
        answer = self._answer(doing)
        if isinstance(answer, DressageError):
            raise answer
        return answer

    def delivery(self) -> Delivery:
        """Read what came of an order."""
        try:
            answer = self._answer("collecting a fragment")
        except WorkerLostError as error:
            return Delivery(self.index, error=error)
        if isinstance(answer, DressageError):
            return Delivery(self.index, error=answer)
        assert isinstance(answer, Parcel)
        return Delivery(self.index, self._reader.read(answer))

    def hung(self, doing: str, timeout: float) -> WorkerLostError:
        """Return an error that says that no answer came in time."""
        self.deadline = None
        error = WorkerLostError(
            f"{self._name()} gave no answer within {timeout:g} s while {doing}. If its environment needs "
            "longer, raise timeout_s."
        )
        error.hung = True
        return error

    def ask_to_quit(self) -> None:
        """Tell the process to end, where it still listens."""
        if self._process is None or not self._process.is_alive() or self.deadline is not None:
            return
        try:
            self.pipe.send((QUIT, None))
        except OSError:
            self._process.join(0)  # It is ending by itself.

    def end(self) -> None:
        """Wait for the process to end, then make it. One that works on an order is not waited for."""
        if self._process is None:
            return
        self._process.join(PATIENCE if self.deadline is None else 0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()
        self._process = None
        self.pipe.close()

    def _answer(self, doing: str) -> Any:  # noqa: ANN401
        self.deadline = None
        try:
            answer = self.pipe.recv()
            while isinstance(answer, tuple) and answer[0] == NEW_BUFFER:
                self._reader.attach(recv_handle(self.pipe), answer[1])
                answer = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise self._lost(doing) from error
        return answer

    def _lost(self, doing: str) -> WorkerLostError:
        assert self._process is not None
        self._process.join(PATIENCE)
        self.deadline = None
        hint = (
            ' A script that starts workers must do so under `if __name__ == "__main__":`.'
            if doing == "starting"
            else ""
        )
        return WorkerLostError(
            f"{self._name()} ended with {exit_words(self._process.exitcode)} while {doing}.{hint}"
        )

    def _name(self) -> str:
        return f"Worker {self.index} (pid {self._pid})"


def pickled(spec: RunSpec) -> bytes:
    """Pickle what workers are made of.

    Raises:
        ConfigError: If that can't be done.
    """
    try:
        return bytes(ForkingPickler.dumps(spec))
    except Exception as error:
        raise ConfigError(
            f"{spec.policy!r} and {spec.make_env!r} can't be sent to worker processes ({error}). "
            "Give classes and functions at the top of a module (functools.partial with arguments is fine), "
            "or keep the workers in this process with transport='inline'."
        ) from error
