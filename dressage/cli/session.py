"""Owns a session of training: starts or resumes a run, trains, and leaves everything in the run directory."""

import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from dressage.cli.algorithm import CheckpointStore, Trainable
from dressage.cli.results import finish_run, show_results
from dressage.cli.run_setup import Plan, Request, fresh_state, new_folder, plan_again, plan_run
from dressage.cli.stop_signals import GO_ON, INTERRUPTED, StopSignals
from dressage.cli.training_loop import Outcome, Timing, TrainingLoop
from dressage.errors import CheckpointError, ConfigError
from dressage.reporting.metric_rows import keep_until
from dressage.reporting.progress import open_progress
from dressage.reporting.report import describe_resume
from dressage.reporting.run_folder import FINISHED, RunFolder, RunRecord, read_summary
from dressage.reporting.run_lock import locked
from dressage.reporting.sinks import JsonLines, Sink, TensorBoard, WeightsAndBiases, check_installed
from dressage.reporting.wording import describe_count

KEPT_CHECKPOINTS = 3
DONE = 0

NOTHING = -1
"""Updates before the first row: that of the untrained policy stands at 0."""


@dataclass(frozen=True)
class Extras:
    """What a session does besides training.

    Attributes:
        film: Whether to film the policy at the end; None for what the run was started with.
        tensorboard: Whether to write TensorBoard event files too.
        wandb: Project at Weights & Biases that the rows go to; None for none.
        quiet: Whether to leave out the live progress.
    """

    film: bool | None = None
    tensorboard: bool = False
    wandb: str | None = None
    quiet: bool = False


@dataclass(frozen=True)
class Start:
    """Where a session goes on from.

    Attributes:
        state: The trainer's state.
        timing: Times of the sessions before.
    """

    state: Any
    timing: Timing


def start_run(request: Request, path: Path, extras: Extras) -> int:
    """Train a new run.

    Args:
        request: What to train.
        path: The run directory; must not hold anything.
        extras: What to do besides.

    Returns:
        The exit code.

    Raises:
        DressageError: If the request is wrong or training fails.
    """
    console = Console()
    check_installed(tensorboard=extras.tensorboard, wandb=extras.wandb is not None)
    plan = plan_run(request)
    with (
        closing_run(plan),
        new_folder(path, plan.record) as folder,
        StopSignals(_stopped_at_once(folder)) as stop,
    ):
        _introduce(console, folder, plan)
        start = _begin(folder, plan)
        return _train(console, folder, plan, start, extras, stop)


def resume_run(path: Path, updates: int | None, extras: Extras) -> int:
    """Go on with a run that was stopped; the task and the options come from its `config.json`.

    Args:
        path: The run directory.
        updates: Updates behind the checkpoint to go on from, later ones are removed; None for the newest.
        extras: What to do besides.

    Returns:
        The exit code.

    Raises:
        DressageError: If there is no run, a checkpoint is damaged or training fails.
    """
    console = Console()
    folder = RunFolder(path)
    plan = plan_again(RunRecord.read(folder))
    trainer = plan.trainer
    with closing_run(plan), locked(path), StopSignals(_stopped_at_once(folder)) as stop:
        start = _restore(folder, plan, updates)
        done = trainer.updates_done(start.state)
        if done >= trainer.num_updates and read_summary(folder).get("status") == FINISHED:
            _say(console, f"{path} is finished already, after {describe_count(done, 'update')}.")
            return DONE
        _say(console, _described_start(folder, trainer, done))
        return _train(console, folder, plan, start, extras, stop)


@contextmanager
def closing_run(plan: Plan) -> Iterator[None]:
    """End what a run has started besides its own process, however the session ends."""
    try:
        yield
    finally:
        plan.algorithm.close_run(plan.trainer)


def _begin(folder: RunFolder, plan: Plan) -> Start:
    """Return where a new run starts; where that cannot be had, its directory goes, which holds no result."""
    try:
        return Start(fresh_state(folder, plan), Timing())
    except Exception:
        # Windows keeps the lock's open file; a directory with that alone counts as empty.
        shutil.rmtree(folder.path, ignore_errors=True)
        raise


def _train(
    console: Console, folder: RunFolder, plan: Plan, start: Start, extras: Extras, stop: StopSignals
) -> int:
    checkpoints = plan.algorithm.checkpoints(folder.checkpoints, KEPT_CHECKPOINTS)
    with _open_sinks(folder, plan.record, extras) as sinks, _remembering_the_remedy(folder, checkpoints):
        loop = TrainingLoop(
            plan.trainer,
            checkpoints,
            sinks,
            open_progress(console, quiet=extras.quiet),
            stop,
            frozenset(plan.algorithm.updates_at_evaluations(plan.record.options)),
            events=partial(plan.algorithm.events, plan.trainer),
        )
        outcome = loop.run(start.state, start.timing)
    return _conclude(console, folder, plan, outcome, extras)


@contextmanager
def _remembering_the_remedy(folder: RunFolder, checkpoints: CheckpointStore) -> Iterator[None]:
    """Note with an error how the run goes on, where there is a checkpoint to go on from."""
    try:
        yield
    except Exception as error:
        if checkpoints.steps():
            error.add_note(_go_on(folder))
        raise


def _conclude(console: Console, folder: RunFolder, plan: Plan, outcome: Outcome, extras: Extras) -> int:
    film = plan.record.filmed if extras.film is None else extras.film
    finish_run(folder, plan, outcome, film=film and outcome.finished)
    show_results(console, folder, plan.algorithm.options)
    if outcome.finished:
        return DONE
    done = plan.trainer.updates_done(outcome.state)
    _say(console, f"Stopped after {describe_count(done, 'update')}; all is saved.\n{_go_on(folder)}")
    return INTERRUPTED


def _restore(folder: RunFolder, plan: Plan, updates: int | None) -> Start:
    trainer = plan.trainer
    checkpoints = plan.algorithm.checkpoints(folder.checkpoints, KEPT_CHECKPOINTS)
    kept = checkpoints.steps()
    if updates is not None and updates not in kept:
        known = ", ".join(map(str, kept)) or "none"
        raise ConfigError(f"{folder.path} has no checkpoint after {updates:,} updates. It has: {known}.")
    if not kept:
        keep_until(folder.metrics, NOTHING)
        return Start(fresh_state(folder, plan), Timing())
    chosen = kept[-1] if updates is None else updates
    try:
        state, note = checkpoints.restore(trainer.init(), chosen)
    except CheckpointError as error:
        raise CheckpointError(f"{error} {_remedy(folder, kept, chosen)}") from error
    checkpoints.discard_after(chosen)
    keep_until(folder.metrics, chosen)
    return Start(state, Timing(**note))


def _remedy(folder: RunFolder, kept: Sequence[int], broken: int) -> str:
    older = [updates for updates in kept if updates < broken]
    if not older:
        return "There is no older checkpoint to go on from: train it anew into another folder."
    return f"To go on from the one before: dressage train --run {_quoted(folder)} --resume-from {older[-1]}"


def _described_start(folder: RunFolder, trainer: Trainable[Any], done: int) -> str:
    path = folder.path
    if done == 0:
        return f"{path} has no checkpoint yet, so training starts from the beginning."
    progress = f"{done:,} of {describe_count(trainer.num_updates, 'update')}"
    if done >= trainer.num_updates:
        return f"{path} has made {progress}; only its results are still to be written."
    return f"Going on with {path} after {progress}; exact resume: {describe_resume(trainer.exact_resume)}."


@contextmanager
def _open_sinks(folder: RunFolder, record: RunRecord, extras: Extras) -> Iterator[Sequence[Sink]]:
    sinks: list[Sink] = [JsonLines(folder.metrics)]
    try:
        if extras.tensorboard:
            sinks.append(TensorBoard(folder.tensorboard, record.seeds))
        if extras.wandb:
            sinks.append(WeightsAndBiases(extras.wandb, folder.path, record.options, record.seeds))
        yield sinks
    finally:
        for sink in sinks:
            sink.close()


def _introduce(console: Console, folder: RunFolder, plan: Plan) -> None:
    record, trainer = plan.record, plan.trainer
    steps = trainer.num_updates * trainer.steps_per_update
    what = f"{plan.algorithm.title} on {record.task}, {describe_count(len(record.seeds), 'seed')}"
    each = " each" if len(record.seeds) > 1 else ""
    updates = describe_count(trainer.num_updates, "update")
    _say(console, f"{what}: {describe_count(steps, 'step')}{each} in {updates}. Run: {folder.path}")
    if record.changed:
        changed = "  ".join(f"{name}={value}" for name, value in record.changed.items())
        _say(console, f"Changed options: {changed}")
    for warning in plan.algorithm.warnings(record.options):
        _say(console, warning)


def _go_on(folder: RunFolder) -> str:
    return f"{GO_ON}dressage train --run {_quoted(folder)} --resume"


def _quoted(folder: RunFolder) -> str:
    return shlex.quote(str(folder.path))


def _stopped_at_once(folder: RunFolder) -> str:
    return f"Stopped at once; what came after the last checkpoint is lost.\n{_go_on(folder)}"


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
