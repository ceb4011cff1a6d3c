"""Owns the live view of a run: a Rich bar on a terminal, plain lines where there is none."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.text import Text

from dressage.reporting.seed_statistics import ReturnSummary
from dressage.reporting.wording import describe_count, describe_duration, describe_number, describe_rate

PLAIN_INTERVAL_S = 10.0
"""Least time between two plain lines that no evaluation prompted, in seconds."""


COMPILING = "compiling ..."


@dataclass(frozen=True)
class Status:
    """Where a run stands.

    Attributes:
        steps: Environment steps done, of one seed.
        total_steps: Environment steps of the whole run, of one seed.
        steps_per_second: Of all seeds together; NaN while unknown.
        time_left_s: Expected seconds to the end; NaN while unknown.
        training_return: Mean return of the training episodes that ended lately, over the seeds; NaN if none.
    """

    steps: int
    total_steps: int
    steps_per_second: float
    time_left_s: float
    training_return: float


class ProgressView(Protocol):
    """What the training loop tells of its progress; the loop's result does not depend on it."""

    def start(self, status: Status) -> None:
        """Begin, before anything is compiled."""

    def advance(self, status: Status) -> None:
        """A chunk of updates is done."""

    def evaluated(self, status: Status, summary: ReturnSummary) -> None:
        """An evaluation is done."""

    def say(self, text: str) -> None:
        """Tell the user something in a line of its own."""

    def stop(self) -> None:
        """End; also after an error."""


def open_progress(console: Console, *, quiet: bool = False) -> ProgressView:
    """Choose the view that fits where the output goes.

    Args:
        console: Where to show it.
        quiet: Show only what is said in words.
    """
    if quiet:
        return PlainProgress(console, interval_s=math.inf, evaluations=False)
    return RichProgress(console) if console.is_terminal else PlainProgress(console)


class PlainProgress:
    """One line at each evaluation, and one every few seconds between them.

    Args:
        console: Where the lines go.
        interval_s: Least time between two lines that no evaluation prompted, in seconds.
        evaluations: Whether evaluations get lines.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        console: Console,
        interval_s: float = PLAIN_INTERVAL_S,
        *,
        evaluations: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._interval = interval_s
        self._evaluations = evaluations
        self._clock = clock
        self._last_line = clock()

    def start(self, status: Status) -> None:
        """Say what is about to run."""
        if self._evaluations:
            self._line(f"{status.steps:,} of {status.total_steps:,} steps; {COMPILING}")

    def advance(self, status: Status) -> None:
        """Print a line if the last one is old."""
        if self._clock() - self._last_line >= self._interval:
            self._line(_plain(status) + _training_return(status))

    def evaluated(self, status: Status, summary: ReturnSummary) -> None:
        """Print a line."""
        if self._evaluations:
            self._line(f"{_plain(status)}  return {describe_return(summary)}")

    def say(self, text: str) -> None:
        """Print the text."""
        self._line(text)

    def stop(self) -> None:
        """Nothing is left to do."""

    def _line(self, text: str) -> None:
        self._last_line = self._clock()
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


class RichProgress:
    """A live bar with steps, speed, return and time left.

    Args:
        console: A terminal.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            BarColumn(bar_width=None, complete_style="cyan", finished_style="green"),
            _Steps(),
            _Field("speed", style="magenta"),
            _Field("left", style="dim"),
            TextColumn("{task.fields[outcome]}"),
            _Field("phase", style="dim"),
            console=console,
            expand=True,
            refresh_per_second=5,
        )
        self._task = self._bar.add_task("", total=None, speed="", left="", outcome="", phase=COMPILING)

    def start(self, status: Status) -> None:
        """Show the bar; it pulses until the first chunk is done."""
        self._bar.update(self._task, total=status.total_steps, completed=status.steps)
        self._bar.start()

    def advance(self, status: Status) -> None:
        """Move the bar."""
        self._show(status, phase="")

    def evaluated(self, status: Status, summary: ReturnSummary) -> None:
        """Show the return with its spread."""
        # After the evaluation of an untrained policy the updates are still to be compiled.
        phase = "" if status.steps else COMPILING
        self._show(status, phase=phase, outcome=f"[bold]return {describe_return(summary)}[/bold]")

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._console.print(text, highlight=False, markup=False)

    def stop(self) -> None:
        """Leave the bar as it stands."""
        self._bar.stop()

    def _show(self, status: Status, phase: str, outcome: str | None = None) -> None:
        fields = {"speed": _speed(status), "left": _time_left(status), "phase": phase}
        fields |= {} if outcome is None else {"outcome": outcome}
        self._bar.update(self._task, completed=status.steps)
        self._bar.tasks[0].fields.update(fields)


class _Steps(ProgressColumn):
    """Steps done of steps asked for."""

    def render(self, task: Task) -> Text:
        total = int(task.total or 0)
        width = len(f"{total:,}")
        return Text(f"{int(task.completed):>{width},} / {total:,} steps", style="bold")


class _Field(ProgressColumn):
    """One field of the task, in one style; nothing while it is empty."""

    def __init__(self, name: str, style: str) -> None:
        super().__init__()
        self._name = name
        self._style = style

    def render(self, task: Task) -> Text:
        return Text(str(task.fields[self._name]), style=self._style)


def describe_return(summary: ReturnSummary) -> str:
    """Return an estimate with its spread in a few characters, and how many episodes are unfinished."""
    text = f"{describe_number(summary.estimate)} ± {describe_number(summary.deviation)}"
    return text + (f" ({summary.unfinished} unfinished)" if summary.unfinished else "")


def _plain(status: Status) -> str:
    share = 100.0 * status.steps / status.total_steps
    parts = (f"{share:3.0f} %", describe_count(status.steps, "step"), _speed(status), _time_left(status))
    return "  ".join(part for part in parts if part)


def _training_return(status: Status) -> str:
    known = not math.isnan(status.training_return)
    return f"  training return {describe_number(status.training_return)}" if known else ""


def _speed(status: Status) -> str:
    return describe_rate(status.steps_per_second)


def _time_left(status: Status) -> str:
    return "" if math.isnan(status.time_left_s) else f"{describe_duration(status.time_left_s)} left"
