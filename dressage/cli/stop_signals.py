"""Owns what Ctrl-C and SIGTERM do while training: first an orderly end, then an end at once."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

WATCHED = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 130
SHOW_CURSOR = b"\x1b[?25h" if sys.stderr.isatty() else b""  # A live progress bar hides it.
NOTICE = b"\nStopping after this chunk of updates. Press Ctrl-C again to stop at once.\n"


class StopSignals:
    """Within its context the first signal sets `requested`; the second ends the process.

    The second ends it without an exception: one that is raised while Python clears weak references or closes
    an event loop is lost. Checkpoints and rows of metrics are whole at every moment, so nothing is left
    half-written. Outside of the main thread Python delivers no signals, so there it watches for none.

    Args:
        farewell: What to write to standard error before the process ends.
        leave: Ends the process with an exit code.
    """

    def __init__(self, farewell: str = "", leave: Callable[[int], object] = os._exit) -> None:
        self.requested = False
        self._farewell = farewell
        self._leave = leave
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._take) for number in WATCHED}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _take(self, _number: int, _frame: FrameType | None) -> None:
        if self.requested:
            os.write(2, SHOW_CURSOR + f"\n{self._farewell}\n".encode())
            self._leave(INTERRUPTED)
            return
        self.requested = True
        # Written past Python's buffers: a handler may run in the middle of another print.
        os.write(2, NOTICE)
