"""Owns what Ctrl-C and SIGTERM do while training: ask for an orderly end first, end at once on the second."""

import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

WATCHED = (signal.SIGINT, signal.SIGTERM)
NOTICE = b"\nStopping after this chunk of updates. Press Ctrl-C again to stop at once.\n"


class StopSignals:
    """Within its context the first signal sets `requested`; the second raises `KeyboardInterrupt`.

    Outside of the main thread Python delivers no signals, so there it watches for none.
    """

    def __init__(self) -> None:
        self.requested = False
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
            raise KeyboardInterrupt
        self.requested = True
        # Written past Python's buffers: a handler may run in the middle of another print.
        os.write(2, NOTICE)
