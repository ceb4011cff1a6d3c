"""Owns the loop between compiled chunks of updates: rows, progress, evaluations, checkpoints, orderly stops.

Nothing here touches what is learned: the trainer's state goes through `advance` alone, and how many updates a
chunk has changes no result.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from dressage.cli.algorithm import CheckpointStore, Trainable
from dressage.cli.stop_signals import StopSignals
from dressage.reporting.metric_rows import Row, episode_returns, eval_row, event_row, seed_values, train_row
from dressage.reporting.progress import ProgressView, Status
from dressage.reporting.seed_statistics import summarize_returns
from dressage.reporting.sinks import Sink

CHUNK_S = 0.75
"""How long a chunk should take, in seconds: long enough to cost nothing, short enough to stop soon."""

LEAST_ROWS = 50
"""Rows of training metrics that a short run gets too, so that its diagnostics are curves and not points."""

CHECKPOINT_S = 30.0
"""Most seconds between two checkpoints, a chunk's length aside."""


@dataclass(frozen=True)
class Timing:
    """How long a run has taken so far, over all its sessions.

    Attributes:
        time_s: Seconds of training, start-up and evaluations included.
        start_up_s: Seconds of the first chunk of the first session, almost all of it compilation.
        advance_s: Seconds within the chunks that were timed, which are all but each session's first.
        advance_steps: Environment steps of all seeds in those chunks.
    """

    time_s: float = 0.0
    start_up_s: float = 0.0
    advance_s: float = 0.0
    advance_steps: int = 0

    @property
    def steps_per_second(self) -> float:
        """Environment steps a second of all seeds together; NaN before anything was timed."""
        return self.advance_steps / self.advance_s if self.advance_s > 0.0 else math.nan


@dataclass(frozen=True)
class Outcome:
    """What a session of training ends with.

    Attributes:
        state: The trainer's state.
        timing: Times over all sessions of the run.
        finished: Whether all updates are done; False after an orderly stop.
    """

    state: Any
    timing: Timing
    finished: bool


class Pace:
    """Chooses how many updates the next chunk has.

    The first chunk compiles, so it has one update and its time is not counted.

    Args:
        total: Updates of the whole run.
        chunk_s: Seconds that a chunk should take.
    """

    def __init__(self, total: int, chunk_s: float = CHUNK_S) -> None:
        self._most = max(1, total // LEAST_ROWS)
        self._chunk_s = chunk_s
        self._update_s = math.inf

    def updates(self, limit: int) -> int:
        """Return the length of the next chunk, at least 1 and at most `limit` updates."""
        fitting = self._chunk_s / self._update_s
        return max(1, min(limit, self._most, int(min(fitting, limit))))

    def timed(self, updates: int, seconds: float) -> None:
        """Learn from a chunk."""
        self._update_s = max(seconds, 1e-9) / updates


class TrainingLoop:
    """Trains to the end or to a stop signal.

    Args:
        trainer: What is trained.
        checkpoints: Where its state is saved.
        sinks: Where the rows go.
        view: Who watches.
        stop: Says when to stop.
        evaluations: Update counts after which an evaluation is due; where there are any, the untrained policy
            is evaluated too.
        clock: Seconds, monotonic.
        events: Returns what happened to the run since the last call, for `event_row`.
    """

    def __init__(
        self,
        trainer: Trainable[Any],
        checkpoints: CheckpointStore,
        sinks: Sequence[Sink],
        view: ProgressView,
        stop: StopSignals,
        evaluations: frozenset[int],
        clock: Callable[[], float] = time.monotonic,
        events: Callable[[], Sequence[Mapping[str, Any]]] = tuple,
    ) -> None:
        self._trainer = trainer
        self._checkpoints = checkpoints
        self._sinks = sinks
        self._view = view
        self._stop = stop
        self._evaluations = evaluations
        self._events = events
        self._clock = clock
        self._pace = Pace(trainer.num_updates)
        self._timing = Timing()
        self._session_start = 0.0
        self._time_before = 0.0
        self._last_save = 0.0
        self._first_update = 0
        self._timed_updates = 0
        self._timed_s = 0.0
        self._has_evaluated = False
        self._evaluation_s = math.nan

    def run(self, state: Any, timing: Timing) -> Outcome:  # noqa: ANN401 (any trainer's state)
        """Train.

        Args:
            state: Where to go on from; it is used up.
            timing: Times of earlier sessions of the run.

        Raises:
            NonFiniteError: If the environment or a loss gave NaN or infinity; what was saved before stays.
        """
        self._timing, self._time_before = timing, timing.time_s
        self._session_start = self._last_save = self._clock()
        done = self._first_update = self._trainer.updates_done(state)
        self._view.start(self._status(state, math.nan))
        try:
            if done == 0 and self._evaluations:
                # What the untrained policy gets is where the curve starts.
                self._evaluate(state, self._status(state, math.nan), math.nan)
            while done < self._trainer.num_updates and not self._stop.requested:
                state = self._chunk(state, done)
                done = self._trainer.updates_done(state)
                self._save_if_due(state, done)
        finally:
            self._view.stop()
        return Outcome(state, self._timing, finished=done >= self._trainer.num_updates)

    def _chunk(self, state: Any, done: int) -> Any:  # noqa: ANN401
        updates = self._pace.updates(self._until_pause(done))
        began = self._clock()
        try:
            state, metrics = self._trainer.advance(state, updates)
        finally:
            self._tell_events()  # What led to an error as well.
        seconds = self._clock() - began
        self._count(updates, seconds, first=done == self._first_update)
        row = train_row(self._progress(state, updates, seconds), metrics)
        self._emit(row)
        status = self._status(state, row["steps_per_second"], row)
        self._view.advance(status)
        if done + updates in self._evaluations:
            self._evaluate(state, status, row["steps_per_second"])
        return state

    def _evaluate(self, state: Any, status: Status, rate: float) -> None:  # noqa: ANN401
        began = self._clock()
        metrics = self._trainer.evaluate(state)
        if not metrics:
            return
        # The first evaluation compiles, so the second is the first that tells what later ones take.
        self._evaluation_s = self._clock() - began if self._has_evaluated else math.nan
        self._has_evaluated = True
        self._tick()
        row = eval_row(self._progress_at(state, rate), metrics)
        self._emit(row)
        self._view.evaluated(status, summarize_returns(episode_returns(row)))

    def _until_pause(self, done: int) -> int:
        later = [updates for updates in self._evaluations if updates > done]
        return min([*later, self._trainer.num_updates]) - done

    def _count(self, updates: int, seconds: float, *, first: bool) -> None:
        self._tick()
        if not first:
            self._pace.timed(updates, seconds)
            self._timed_updates += updates
            self._timed_s += seconds
            steps = self._timing.advance_steps + self._steps_of(updates)
            self._timing = replace(
                self._timing, advance_s=self._timing.advance_s + seconds, advance_steps=steps
            )
            return
        if self._timing.start_up_s == 0.0:
            self._timing = replace(self._timing, start_up_s=seconds)

    def _save_if_due(self, state: Any, done: int) -> None:  # noqa: ANN401
        overdue = self._clock() - self._last_save >= CHECKPOINT_S
        ended = done >= self._trainer.num_updates or self._stop.requested
        if not (overdue or ended or done in self._evaluations):
            return
        self._tick()
        self._checkpoints.save(done, state, asdict(self._timing))
        self._last_save = self._clock()
        self._tell_events()

    def _tell_events(self) -> None:
        self._tick()
        for event in self._events():
            self._emit(event_row(self._timing.time_s, event))
            if "worker" in event:
                of_seed = f"seed {event['of_seed']}: " if "of_seed" in event else ""
                self._view.say(of_seed + event["event"])

    def _emit(self, row: Row) -> None:
        for sink in self._sinks:
            sink.write(row)

    def _tick(self) -> None:
        elapsed = self._clock() - self._session_start
        self._timing = replace(self._timing, time_s=self._time_before + elapsed)

    def _progress(self, state: Any, updates: int, seconds: float) -> dict[str, float]:  # noqa: ANN401
        return self._progress_at(state, self._steps_of(updates) / max(seconds, 1e-9))

    def _progress_at(self, state: Any, rate: float) -> dict[str, float]:  # noqa: ANN401
        return {
            "updates": self._trainer.updates_done(state),
            "steps": self._trainer.steps_done(state),
            "time_s": self._timing.time_s,
            "steps_per_second": rate,
        }

    def _status(self, state: Any, rate: float, row: Row | None = None) -> Status:  # noqa: ANN401
        returns = seed_values(row, "train/episode_return") if row else np.array([math.nan])
        known = returns[~np.isnan(returns)]
        done = self._trainer.updates_done(state)
        return Status(
            steps=self._trainer.steps_done(state),
            total_steps=self._trainer.num_updates * self._trainer.steps_per_update,
            steps_per_second=rate,
            time_left_s=self._time_left(done),
            training_return=float(known.mean()) if known.size else math.nan,
        )

    def _time_left(self, done: int) -> float:
        if not self._timed_updates:
            return math.nan
        pauses = sum(updates > done for updates in self._evaluations)
        evaluating = 0.0 if math.isnan(self._evaluation_s) else pauses * self._evaluation_s
        return self._timed_s / self._timed_updates * (self._trainer.num_updates - done) + evaluating

    def _steps_of(self, updates: int) -> int:
        return updates * self._trainer.steps_per_update * len(self._trainer.seeds)
