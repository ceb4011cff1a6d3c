"""The loop between chunks: evaluations where due, orderly stops, and nothing that changes the result."""

import io
import math
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from rich.console import Console

from dressage.cli.stop_signals import StopSignals
from dressage.cli.training_loop import Pace, Timing, TrainingLoop
from dressage.errors import NonFiniteError
from dressage.reporting.metric_rows import encode
from dressage.reporting.progress import PlainProgress
from tests.cli.fake_trainer import STEPS_PER_UPDATE, FakeTrainer, KeptStates


class Rows:
    """A sink that keeps rows; each must be valid JSON."""

    def __init__(self):
        self.rows = []

    def write(self, row):
        encode(row)
        self.rows.append(row)

    def close(self):
        self.rows.append("closed")


class Clock:
    """Seconds that pass only when told."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Bench:
    """A loop with everything around it."""

    def __init__(self, trainer, evaluations=frozenset(), clock=time.monotonic):
        self.trainer, self.rows, self.kept, self.stop = trainer, Rows(), KeptStates(), StopSignals()
        self.shown = io.StringIO()
        view = PlainProgress(Console(file=self.shown, width=120), interval_s=0.0)
        self.loop = TrainingLoop(
            trainer, self.kept, [self.rows], view, self.stop, frozenset(evaluations), clock
        )

    def run(self, state=None, timing=None):
        with self.stop:
            return self.loop.run(self.trainer.init() if state is None else state, timing or Timing())

    def evaluated(self):
        return [row["updates"] for row in self.rows.rows if row["kind"] == "eval"]


def test_every_update_is_made_once_and_the_last_row_tells_the_steps_taken():
    bench = Bench(FakeTrainer())
    outcome = bench.run()
    assert outcome.finished
    assert sum(bench.trainer.chunks) == 40
    last = bench.rows.rows[-1]
    assert (last["kind"], last["updates"], last["steps"]) == ("train", 40, 40 * STEPS_PER_UPDATE)


def test_evaluations_come_exactly_where_they_are_due():
    bench = Bench(FakeTrainer(num_updates=400), evaluations={13, 26, 399, 400})
    bench.run()
    assert bench.trainer.evaluated_at == [0, 13, 26, 399, 400]
    assert bench.evaluated() == [0, 13, 26, 399, 400]


def test_the_untrained_policy_is_evaluated_once_at_the_start_of_a_run():
    bench = Bench(FakeTrainer(), evaluations={40})
    bench.run()
    first = bench.rows.rows[0]
    assert (first["kind"], first["updates"], first["steps"]) == ("eval", 0, 0)
    assert first["steps_per_second"] is None
    assert "  0 %  0 steps  return " in bench.shown.getvalue()
    resumed = Bench(FakeTrainer(), evaluations={40})
    resumed.run({"weight": np.array([0.5]), "updates": np.array(20)})
    assert resumed.trainer.evaluated_at == [40]


def test_without_evaluations_the_untrained_policy_is_not_evaluated_either():
    bench = Bench(FakeTrainer())
    bench.run()
    assert bench.trainer.evaluated_at == []


def test_evaluations_and_progress_change_nothing_that_is_learned():
    plain, watched = Bench(FakeTrainer()), Bench(FakeTrainer(), evaluations=range(1, 41))
    np.testing.assert_array_equal(plain.run().state["weight"], watched.run().state["weight"])


def test_a_trainer_without_evaluation_episodes_writes_training_rows_only():
    bench = Bench(FakeTrainer(evaluation_episodes=0), evaluations={20, 40})
    assert bench.run().finished
    assert {row["kind"] for row in bench.rows.rows} == {"train"}


def test_several_seeds_give_lists_and_count_in_the_speed():
    clock = Clock()

    def pass_time(done):
        clock.now += 0.5

    bench = Bench(FakeTrainer(num_updates=4, seeds=(3, 4, 5), before_update=pass_time), {4}, clock)
    outcome = bench.run()
    row = bench.rows.rows[1]
    assert len(row["train/loss"]) == 3
    assert row["steps_per_second"] == 3 * STEPS_PER_UPDATE / 0.5
    assert (row["steps"], row["time_s"]) == (STEPS_PER_UPDATE, 0.5)
    assert bench.rows.rows[-1]["eval/unfinished"] == [1, 1, 1]
    assert outcome.timing.start_up_s == 0.5
    assert (outcome.timing.advance_s, outcome.timing.advance_steps) == (1.5, 9 * STEPS_PER_UPDATE)
    assert outcome.timing.steps_per_second == 3 * STEPS_PER_UPDATE / 0.5


def test_the_first_chunk_has_one_update_and_later_ones_take_about_the_time_asked_for():
    pace = Pace(10_000, chunk_s=0.75)
    assert pace.updates(10_000) == 1
    pace.timed(1, 0.01)
    assert pace.updates(10_000) == 75
    assert pace.updates(30) == 30
    pace.timed(75, 75.0)
    assert pace.updates(10_000) == 1


def test_a_short_run_still_gets_fifty_rows():
    pace = Pace(100)
    pace.timed(1, 1e-6)
    assert pace.updates(100) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_signal_finishes_the_chunk_and_saves(number, capfd):
    def interrupt(done):
        if done == 10:
            os.kill(os.getpid(), number)

    bench = Bench(FakeTrainer(before_update=interrupt), evaluations={40})
    outcome = bench.run()
    done = bench.trainer.updates_done(outcome.state)
    assert not outcome.finished
    assert 11 <= done < 40
    assert bench.kept.saved[-1][0] == done
    assert "Press Ctrl-C again to stop at once" in capfd.readouterr().err


def test_the_second_signal_ends_the_process_with_130(capfd):
    def interrupt(done):
        if done in (10, 11):
            os.kill(os.getpid(), signal.SIGINT)

    bench = Bench(FakeTrainer(num_updates=4000, before_update=interrupt), evaluations={4000})
    bench.loop._pace.timed(100, 1e-9)
    codes, before = [], signal.getsignal(signal.SIGINT)  # Shells have it ignored in the background.
    bench.stop._leave = codes.append
    bench.run()
    assert codes == [130]
    assert signal.getsignal(signal.SIGINT) is before
    capfd.readouterr()


def test_two_signals_within_one_compiled_chunk_count_as_two(capfd):
    codes, left = [], threading.Event()

    def leave(code):
        codes.append(code)
        left.set()

    with StopSignals("All is well.", leave):
        # No handler of Python's runs within this call, as none does within a compiled chunk.
        list(map(os.kill, [os.getpid()] * 2, [signal.SIGINT] * 2))
        assert left.wait(60.0)
    assert codes == [130]
    assert "All is well." in capfd.readouterr().err


def test_other_handlers_and_wakeup_files_are_back_afterwards():
    handler, wakeup = signal.getsignal(signal.SIGINT), signal.set_wakeup_fd(-1)
    with StopSignals() as stop:
        assert signal.getsignal(signal.SIGINT) != handler
    assert signal.getsignal(signal.SIGINT) is handler
    assert signal.set_wakeup_fd(wakeup) == -1
    assert not stop.requested


FORKING = """
import os, signal
from dressage.cli.stop_signals import StopSignals
with StopSignals() as stop:
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0
    else:
        signal.raise_signal(signal.SIGINT)
        os._exit(0 if stop.requested else 1)
print(stop.requested)
"""


def test_a_signal_of_a_forked_worker_does_not_count_here():
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n", done.stderr


def test_stopped_and_resumed_training_ends_like_training_in_one_go():
    def interrupt(done):
        if done == 10 and len(first.trainer.chunks) > 1:
            first.stop.requested = True

    first = Bench(FakeTrainer(before_update=interrupt), evaluations={20, 40})
    first.run()
    step, state, note = first.kept.saved[-1]
    second = Bench(FakeTrainer(), evaluations={20, 40})
    resumed = second.run(state, Timing(**{**note, "time_s": 100.0}))
    whole = Bench(FakeTrainer(), evaluations={20, 40}).run()
    assert step < 40
    np.testing.assert_array_equal(resumed.state["weight"], whole.state["weight"])
    assert second.rows.rows[0]["time_s"] >= 100.0
    assert resumed.timing.start_up_s == note["start_up_s"]


def test_checkpoints_come_at_evaluations_at_the_end_and_every_thirty_seconds():
    clock = Clock()

    def pass_time(done):
        clock.now += 4.0

    bench = Bench(FakeTrainer(num_updates=30, before_update=pass_time), evaluations={12}, clock=clock)
    bench.run()
    assert [step for step, _, _ in bench.kept.saved] == [8, 12, 20, 28, 30]
    assert math.isnan(Timing().steps_per_second)


def test_an_evaluation_is_in_the_rows_before_the_checkpoint_that_follows_it():
    bench = Bench(FakeTrainer(num_updates=3), evaluations={2, 3})
    kinds = []
    bench.kept.save = lambda step, state, note: kinds.append((step, bench.rows.rows[-1]["kind"]))
    bench.run()
    assert kinds == [(2, "eval"), (3, "eval")]


def test_a_fault_in_training_reaches_the_caller_and_closes_the_view():
    def fail(done):
        raise NonFiniteError("pendulum: reward of copy 3 is nan at step 7.")

    bench = Bench(FakeTrainer(before_update=fail))
    with pytest.raises(NonFiniteError, match="reward of copy 3"):
        bench.run()
    assert bench.kept.saved == []


def test_the_view_hears_of_time_left_once_a_chunk_was_timed():
    clock = Clock()

    def pass_time(done):
        clock.now += 2.0

    bench = Bench(FakeTrainer(num_updates=5, before_update=pass_time), clock=clock)
    bench.run()
    lines = bench.shown.getvalue().splitlines()
    assert "left" not in lines[1]
    assert "6.0 s left" in lines[2]
    assert "training return -2" in lines[2]
