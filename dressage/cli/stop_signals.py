"""Owns what Ctrl-C and SIGTERM do while training: first an orderly end, then an end at once."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

WATCHED = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 130
GO_ON = "Go on with: "
"""How the line begins that says how a stopped run is resumed, also as the note of an error."""
SHOW_CURSOR = b"\x1b[?25h" if sys.stderr.isatty() else b""  # A live progress bar hides it.
NOTICE = b"\nStopping after this chunk of updates. Press Ctrl-C again to stop at once.\n"


class StopSignals:
    """Within its context the first signal sets `requested`; the second ends the process.

    Python runs handlers between its own instructions, so that to them two signals within one compiled chunk
    look like one, and come after it. The interpreter's C handler writes a byte for each at once: a thread
    reads those and counts, whatever the main thread is busy with.

    The second ends the process without an exception: one that is raised while Python clears weak references
    or closes an event loop is lost. Checkpoints and rows of metrics are whole at every moment, so nothing is
    left half-written. Outside of the main thread Python delivers no signals, so there it watches for none.

    Args:
        farewell: What to write to standard error before the process ends.
        leave: Ends the process with an exit code.
    """

    def __init__(self, farewell: str = "", leave: Callable[[int], object] = os._exit) -> None:
        self.requested = False
        self._farewell = farewell
        self._leave = leave
        self._before: dict[int, Any] = {}
        self._wakeup_before = -1
        self._counter: threading.Thread | None = None
        self._written: socket.socket | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            return self
        read, self._written = socket.socketpair()  # Sockets, since Windows takes no pipes here.
        self._written.setblocking(False)
        self._wakeup_before = signal.set_wakeup_fd(self._written.fileno(), warn_on_full_buffer=False)
        self._counter = threading.Thread(target=self._count, args=(read,), daemon=True)
        self._counter.start()
        self._before = {number: signal.signal(number, self._take) for number in WATCHED}
        if sys.platform != "win32":
            os.register_at_fork(after_in_child=self._leave_to_parent)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._counter is None or self._written is None:
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        self._written.close()  # What was written before is still counted.
        self._written = None
        self._counter.join()

    def _leave_to_parent(self) -> None:
        # Ctrl-C reaches forked workers too; counted with theirs, the first would look like a second.
        if self._written is not None:
            signal.set_wakeup_fd(-1)

    def _take(self, _number: int, _frame: FrameType | None) -> None:
        self.requested = True

    def _count(self, read: socket.socket) -> None:
        with read:
            numbers = iter(lambda: read.recv(1), b"")
            for before, _ in enumerate(number for number in numbers if number[0] in WATCHED):
                self._heard(first=before == 0)

    def _heard(self, *, first: bool) -> None:
        self.requested = True
        # Written past Python's buffers: the main thread may be in the middle of another print.
        if first:
            os.write(2, NOTICE)
            return
        os.write(2, SHOW_CURSOR + f"\n{self._farewell}\n".encode())
        self._leave(INTERRUPTED)
