"""What runs in a worker process; it loads neither JAX nor any learner unless the environment does."""

import contextlib
import os
import pickle
import select
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from typing import Any

from dressage.errors import DressageError, EnvironmentRaisedError
from dressage.tracebacks import told
from dressage.workers.blocks import blocks_over
from dressage.workers.copies import EnvCopies
from dressage.workers.layout import ParallelLayout

STEP, RESET, QUIT = b"s", b"r", b"q"
DONE, FAILED = b"d", b"f"
LONGEST_NOTE = 20_000
"""Characters of a trace that are sent: fewer than a pipe holds, so that no one waits for a reader."""


def work(
    commands: Connection,
    answers: Connection,
    errors: Connection,
    maker: bytes,
    layout: ParallelLayout,
    shared: Any,  # noqa: ANN401 (a ctypes array)
    copies: int,
    start: int,
    stop: int,
) -> None:
    """Make the copies `start` to `stop` and step them when told to, until told to quit or left alone.

    Args:
        commands: Where `STEP`, `RESET` and `QUIT` come from.
        answers: Where `DONE` or `FAILED` goes.
        errors: Where the exception goes before a `FAILED`.
        maker: What makes an environment, pickled.
        layout: How copies lie in arrays.
        shared: The memory of all copies.
        copies: How many there are.
        start: The first copy of this worker.
        stop: One past its last copy.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group: the parent decides.
    end_with_parent()
    blocks = blocks_over(layout, copies, shared).copies(start, stop)
    made: list[EnvCopies] = []

    def answer(task: Callable[[], None]) -> bool:
        failure = attempt(task)
        if failure is not None:
            errors.send(failure)
        os.write(answers.fileno(), DONE if failure is None else FAILED)
        return failure is None

    if answer(lambda: made.append(make_copies(maker, layout, blocks, start, stop))):
        tasks = {STEP: made[0].step, RESET: made[0].reset}
        while (task := tasks.get(next_command(commands))) is not None and answer(task):
            pass
    for env in made:
        env.close()


def make_copies(
    maker: bytes,
    layout: ParallelLayout,
    blocks: Any,  # noqa: ANN401
    start: int,
    stop: int,
) -> EnvCopies:
    """Unpickle the maker and make this worker's copies."""
    make = pickle.loads(maker)
    return EnvCopies([make() for _ in range(start, stop)], layout, blocks, start)


def attempt(task: Callable[[], None]) -> Exception | None:
    """Do something; returns what was raised, as something that can be sent."""
    try:
        task()
    except DressageError as error:
        for index, note in enumerate(getattr(error, "__notes__", ())):
            error.__notes__[index] = note[-LONGEST_NOTE:]
        return error
    except Exception as error:  # noqa: BLE001 (whatever an environment raises while it is made)
        raised = EnvironmentRaisedError(f"Making an environment raised {told(error)}")
        raised.add_note("".join(traceback.format_exception(error))[-LONGEST_NOTE:])
        return raised
    return None


def next_command(commands: Connection) -> bytes:
    """Wait for a command; an end of the pipe, or of the parent, counts as `QUIT`."""
    parent = parent_process()
    waiting = select.poll()
    waiting.register(commands.fileno(), select.POLLIN)
    if parent is not None:
        waiting.register(parent.sentinel, select.POLLIN)
    ready = dict(waiting.poll())
    if commands.fileno() not in ready:
        return QUIT
    with contextlib.suppress(OSError):
        return os.read(commands.fileno(), 1) or QUIT
    return QUIT


def end_with_parent() -> None:
    """Have the kernel end this process with its parent, even while an environment hangs.

    The pipe that `multiprocessing` keeps open in the parent sends SIGIO when it closes, whose default is to
    end the process. Where there is no such signal, a worker notices when it next waits for a command.
    """
    parent = parent_process()
    if parent is None or sys.platform != "linux":
        return
    import fcntl

    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(parent.sentinel, fcntl.F_SETOWN, os.getpid())
    flags = fcntl.fcntl(parent.sentinel, fcntl.F_GETFL)
    fcntl.fcntl(parent.sentinel, fcntl.F_SETFL, flags | os.O_ASYNC)
