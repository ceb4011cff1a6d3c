"""Steps all copies in the process that asks for it."""

from collections.abc import Callable
from typing import Any

from dressage.workers.blocks import blocks_over, bytes_needed
from dressage.workers.copies import EnvCopies
from dressage.workers.layout import ParallelLayout


class InlineStepper:
    """A `Stepper` without processes: `send` does nothing yet, `receive` steps."""

    def __init__(self, make_env: Callable[[], Any], copies: int, layout: ParallelLayout) -> None:
        self.blocks = blocks_over(layout, copies, bytearray(bytes_needed(layout, copies)))
        self._copies = EnvCopies([make_env() for _ in range(copies)], layout, self.blocks)
        self._open = True

    @property
    def saves_state(self) -> bool:
        """Whether every copy can save its state; see `EnvCopies.saves_state`."""
        return self._copies.saves_state

    def save_state(self) -> list[dict[str, Any]]:
        """Return the state of all copies."""
        return self._copies.save_state()

    def load_state(self, saved: list[dict[str, Any]]) -> None:
        """Go on from what `save_state` returned."""
        self._copies.load_state(saved)

    def reset(self) -> None:
        """Reset every copy."""
        self._copies.reset()

    def send(self) -> None:
        """Nothing to start: there is no one else to work meanwhile."""

    def receive(self) -> None:
        """Step every copy."""
        self._copies.step()

    def close(self) -> None:
        """Close every copy, once."""
        if self._open:
            self._open = False
            self._copies.close()
