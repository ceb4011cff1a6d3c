"""Steps copies in worker processes; arrays are shared, single bytes say go and done.

The shared arrays lie in memory without a name, which the kernel frees with the last process that holds it:
there is nothing to leak. Processes are spawned, never forked, since JAX has threads. A worker ends when its
pipe closes, so that it outlives neither its group nor, however that ends, its parent.
"""

import contextlib
import ctypes
import multiprocessing
import os
import select
import signal
import time
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

from dressage.errors import WorkerLostError
from dressage.workers.blocks import blocks_over, bytes_needed
from dressage.workers.child import DONE, FAILED, QUIT, RESET, STEP, work
from dressage.workers.layout import ParallelLayout

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
}
"""What keeps numerical libraries from starting a thread for every core in every worker."""

LONGEST_IMPORT = 120.0
"""Seconds that a worker has at least for its imports and for making its copies."""

PATIENCE = 2.0
"""Seconds that a worker has to end when it is told to, before it is killed."""


class ProcessStepper:
    """A `Stepper` over spawned processes, each with a run of neighbouring copies.

    Args:
        maker: What makes an environment, pickled.
        copies: How many copies.
        layout: How they lie in arrays.
        workers: How many processes.
        timeout: Seconds that a worker may take to reset or step, and to start if more than two minutes.
    """

    def __init__(
        self, maker: bytes, copies: int, layout: ParallelLayout, workers: int, timeout: float
    ) -> None:
        self._timeout = timeout
        context = multiprocessing.get_context("spawn")
        shared = context.RawArray(ctypes.c_byte, bytes_needed(layout, copies))
        self.blocks = blocks_over(layout, copies, shared)
        bounds = [index * copies // workers for index in range(workers + 1)]
        self._workers = [_Worker(index, *bounds[index : index + 2]) for index in range(workers)]
        try:
            self._start(context, (maker, layout, shared, copies))
            self.wait(self._workers, max(timeout, LONGEST_IMPORT))
        except BaseException:
            self.close()
            raise

    def _start(self, context: multiprocessing.context.SpawnContext, task: tuple[object, ...]) -> None:
        with worker_environment():
            for worker in self._workers:
                worker.start(context, task)

    def reset(self) -> None:
        """Reset every copy."""
        self.tell(self._workers, RESET, "resetting")
        self.wait(self._workers)

    def send(self) -> None:
        """Have every worker step its copies."""
        self.tell(self._workers, STEP, "stepping")

    def receive(self) -> None:
        """Wait for every worker."""
        self.wait(self._workers)

    def split(self) -> "list[WorkerStepper]":
        """Return a stepper for each worker, over the same processes: none of them waits for another."""
        return [WorkerStepper(self, worker) for worker in self._workers]

    def close(self) -> None:
        """End all workers; those that do not end by themselves are killed."""
        for worker in self._workers:
            worker.ask_to_quit()
        deadline = time.monotonic() + PATIENCE
        for worker in self._workers:
            worker.end(deadline)

    def tell(self, workers: "list[_Worker]", command: bytes, doing: str) -> None:
        """Give workers a command; `doing` names it in error texts."""
        for worker in workers:
            worker.doing = doing
            try:
                os.write(worker.commands.fileno(), command)
            except OSError as error:
                raise worker.lost() from error

    def wait(self, workers: "list[_Worker]", timeout: float | None = None) -> None:
        """Wait until workers have answered.

        Args:
            workers: All that have been told something.
            timeout: Seconds; by default those of a step.

        Raises:
            WorkerLostError: If one ends or gives no answer in time.
        """
        waiting = {worker.answers.fileno(): worker for worker in workers}
        poll = select.poll()
        for descriptor in waiting:
            poll.register(descriptor, select.POLLIN)
        seconds = self._timeout if timeout is None else timeout
        deadline = time.monotonic() + seconds
        while waiting:
            ready = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
            if not ready:
                raise next(iter(waiting.values())).late(seconds)
            for descriptor, _ in ready:
                poll.unregister(descriptor)
                waiting.pop(descriptor).take_answer()


class WorkerStepper:
    """A `Stepper` over the copies of one worker among others; closing it closes all of them."""

    def __init__(self, whole: ProcessStepper, worker: "_Worker") -> None:
        self.blocks = whole.blocks.copies(*worker.copies)
        self._whole = whole
        self._workers = [worker]

    def reset(self) -> None:
        """Reset the worker's copies."""
        self._whole.tell(self._workers, RESET, "resetting")
        self._whole.wait(self._workers)

    def send(self) -> None:
        """Have the worker step its copies."""
        self._whole.tell(self._workers, STEP, "stepping")

    def receive(self) -> None:
        """Wait for the worker."""
        self._whole.wait(self._workers)

    def descriptor(self) -> int:
        """Return what becomes readable when the worker has answered."""
        return self._workers[0].answers.fileno()

    def close(self) -> None:
        """End all workers."""
        self._whole.close()


class _Worker:
    """One process, as its parent sees it."""

    def __init__(self, index: int, start: int, stop: int) -> None:
        self.index = index
        self.copies = (start, stop)
        self.doing = "starting"
        self._process: SpawnProcess | None = None
        self.commands: Connection
        self.answers: Connection
        self._errors: Connection

    def start(self, context: multiprocessing.context.SpawnContext, task: tuple[object, ...]) -> None:
        """Spawn the process; `task` is what all workers are given."""
        command_end, self.commands = context.Pipe(duplex=False)
        self.answers, answer_end = context.Pipe(duplex=False)
        self._errors, error_end = context.Pipe(duplex=False)
        process = context.Process(
            target=work,
            args=(command_end, answer_end, error_end, *task, *self.copies),
            name=f"dressage-worker-{self.index}",
            daemon=True,
        )
        process.start()
        self._process = process
        for end in (command_end, answer_end, error_end):
            end.close()  # Only the worker holds its ends now, so that its death shows.

    def take_answer(self) -> None:
        """Read the byte that says done, or raise what the worker met with."""
        answer = os.read(self.answers.fileno(), 1)
        if answer == DONE:
            return
        if answer == FAILED:
            error = self._errors.recv()
            assert isinstance(error, Exception)
            raise error
        raise self.lost()

    def lost(self) -> WorkerLostError:
        """Return an error that says how the process ended."""
        assert self._process is not None
        self._process.join(PATIENCE)
        hint = (
            ' A script that starts workers must do so under `if __name__ == "__main__":`.'
            if self.doing == "starting"
            else ""
        )
        return WorkerLostError(
            f"{self._name()} ended with {exit_words(self._process.exitcode)} while {self.doing}.{hint}"
        )

    def late(self, timeout: float) -> WorkerLostError:
        """Return an error that says that no answer came."""
        error = WorkerLostError(
            f"{self._name()} gave no answer within {timeout:g} s while {self.doing}; it was ended. "
            "If its environment needs longer, raise the timeout."
        )
        error.hung = True
        return error

    def ask_to_quit(self) -> None:
        """Tell the process to end."""
        if self._process is not None and self._process.is_alive():
            with contextlib.suppress(OSError):  # It may be gone by now, which is what is wanted.
                os.write(self.commands.fileno(), QUIT)

    def end(self, deadline: float) -> None:
        """Wait for the process to end, then make it; release what it held here."""
        if self._process is None:
            return
        self._process.join(max(0.0, deadline - time.monotonic()))
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process.close()
        self._process = None
        for connection in (self.commands, self.answers, self._errors):
            connection.close()

    def _name(self) -> str:
        start, stop = self.copies
        assert self._process is not None
        which = f"copy {start}" if stop == start + 1 else f"copies {start} to {stop - 1}"
        return f"Worker {self.index} (environment {which}, pid {self._process.pid})"


def exit_words(code: int | None) -> str:
    """Say how a process ended."""
    if code is None:
        return "an unknown exit code"
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"exit code {code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"exit code {code}"


@contextlib.contextmanager
def worker_environment() -> Iterator[None]:
    """Set what a process inherits when it is spawned: one thread each, and JAX, if ever, on the CPU.

    Thread counts that the user has set stay. They must be in place before a library is imported, and the
    environment at the spawning is the only thing that is earlier.
    """
    wanted = {name: os.environ.get(name, value) for name, value in ONE_THREAD.items()}
    with inherited({**wanted, "JAX_PLATFORMS": "cpu"}):
        yield


@contextlib.contextmanager
def inherited(wanted: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for processes that are started meanwhile."""
    before = {name: os.environ[name] for name in wanted if name in os.environ}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name in wanted.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
