"""Stopping, killing and going on: the end is the same, bit for bit."""

import json
import math
import os
import random
import signal
import time

import pytest

from dressage.cli.training_loop import TrainingLoop
from dressage.errors import WorkerLostError
from tests.cli.short_training import SHORT

LONG = (*SHORT[2:], "--steps", "600000", "--no-film")
DEADLINE_S = 240.0


class Killed(BaseException):
    """Stands in for a kill: nothing in the library catches it."""


def weights_of(path):
    return {file.name: file.read_bytes() for file in (path / "policy").iterdir()}


def rows_of(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]


def results_of(path):
    """Evaluations without their times."""
    timeless = ("time_s", "steps_per_second")
    evaluations = [row for row in rows_of(path) if row["kind"] == "eval"]
    return [{name: value for name, value in row.items() if name not in timeless} for row in evaluations]


def assert_same_end(path, whole):
    assert weights_of(path) == weights_of(whole)
    assert results_of(path) == results_of(whole)
    updates = [row["updates"] for row in rows_of(path) if row["kind"] == "train"]
    assert updates == sorted(set(updates))


def interrupt_emit(monkeypatch, at_update, action):
    """Run `action` once, right after the row of `at_update` or a later update is written."""
    emit, done = TrainingLoop._emit, []

    def emit_and_interrupt(loop, row):
        emit(loop, row)
        if row["updates"] >= at_update and not done:
            done.append(True)
            action()

    monkeypatch.setattr(TrainingLoop, "_emit", emit_and_interrupt)
    # On a machine that is busy with other things a checkpoint may be overdue between two evaluations.
    monkeypatch.setattr("dressage.cli.training_loop.CHECKPOINT_S", math.inf)


def raise_killed():
    raise Killed


def interrupt_this_process():
    os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_saves_and_resuming_ends_like_training_in_one_go(
    finished, dressage, tmp_path, monkeypatch, capfd
):
    path = tmp_path / "run"
    interrupt_emit(monkeypatch, 11, interrupt_this_process)
    stopped = dressage("train", "pendulum", *SHORT, "--no-film", "--run", path)
    assert stopped.exit_code == 130
    told = " ".join(stopped.output.split())
    assert "Stopped after 11 updates; all is saved." in told
    assert f"dressage train --run {path} --resume" in told
    assert json.loads((path / "summary.json").read_text(encoding="utf-8"))["status"] == "interrupted"
    assert weights_of(path) != weights_of(finished[0])
    resumed = dressage("train", "--run", path, "--resume", "--no-film")
    assert resumed.exit_code == 0
    assert "after 11 of 32 updates; exact resume: yes." in " ".join(resumed.output.split())
    assert_same_end(path, finished[0])
    assert json.loads((path / "summary.json").read_text(encoding="utf-8"))["status"] == "finished"


def raise_lost_worker():
    raise WorkerLostError("Worker 1 died.")


@pytest.mark.parametrize(("at_update", "remedy"), [(3, False), (13, True)])
def test_an_error_after_a_checkpoint_says_how_to_go_on(at_update, remedy, dressage, tmp_path, monkeypatch):
    path = tmp_path / "run"
    interrupt_emit(monkeypatch, at_update, raise_lost_worker)
    shown = dressage("train", "pendulum", *SHORT, "--no-film", "--run", path)
    assert shown.exit_code == 1
    lines = shown.stderr.splitlines()
    assert lines[0] == "error: Worker 1 died."
    assert lines[1:] == [f"Go on with: dressage train --run {path} --resume"][: int(remedy)]


def test_a_run_without_a_film_has_none_after_resuming_unless_it_is_asked_for(dressage, tmp_path, monkeypatch):
    path, filmed = tmp_path / "run", []
    interrupt_emit(monkeypatch, 11, interrupt_this_process)
    assert dressage("train", "pendulum", *SHORT, "--no-film", "--run", path).exit_code == 130
    monkeypatch.setattr(
        "dressage.cli.session.finish_run", lambda *args, film: filmed.append(film) or raise_killed()
    )
    for words in ((), ("--film",), ("--no-film",)):
        with pytest.raises(Killed):
            dressage("train", "--run", path, "--resume", *words)
    assert filmed == [False, True, False]


@pytest.mark.parametrize(("at_update", "goes_on_after"), [(3, None), (13, 8)])
def test_killed_training_goes_on_and_ends_like_training_in_one_go(
    at_update, goes_on_after, finished, dressage, tmp_path, monkeypatch
):
    path = tmp_path / "run"
    interrupt_emit(monkeypatch, at_update, raise_killed)
    with pytest.raises(Killed):
        dressage("train", "pendulum", *SHORT, "--no-film", "--run", path)
    with (path / "metrics.jsonl").open("a", encoding="utf-8") as metrics:
        metrics.write('{"kind": "tra')
    resumed = dressage("train", "--run", path, "--resume", "--no-film")
    assert resumed.exit_code == 0
    told = " ".join(resumed.output.split())
    assert (f"after {goes_on_after} of 32" if goes_on_after else "starts from the beginning") in told
    assert_same_end(path, finished[0])


def test_training_killed_after_its_last_checkpoint_still_gets_its_report(
    finished, dressage, tmp_path, monkeypatch
):
    path = tmp_path / "run"
    monkeypatch.setattr("dressage.cli.session.finish_run", lambda *args, film: raise_killed())
    with pytest.raises(Killed):
        dressage("train", "pendulum", *SHORT, "--no-film", "--run", path)
    monkeypatch.undo()
    assert dressage("train", "--run", path, "--resume", "--no-film").exit_code == 0
    assert (path / "report.html").exists()
    assert_same_end(path, finished[0])


def test_a_damaged_checkpoint_is_named_and_the_one_before_goes_on_to_the_same_end(
    finished, dressage, tmp_path, monkeypatch
):
    path = tmp_path / "run"
    interrupt_emit(monkeypatch, 20, raise_killed)
    with pytest.raises(Killed):
        dressage("train", "pendulum", *SHORT, "--no-film", "--run", path)
    damage(path / "checkpoints" / "16")
    rows = rows_of(path)
    shown = dressage("train", "--run", path, "--resume", "--no-film")
    assert shown.exit_code == 1
    told = shown.stderr.replace("\n", "")
    assert str(path / "checkpoints" / "16") in told
    assert f"To go on from the one before: dressage train --run {path} --resume-from 8" in told
    assert "Traceback" not in shown.output
    assert rows_of(path) == rows
    assert dressage("train", "--run", path, "--resume-from", "8", "--no-film").exit_code == 0
    assert_same_end(path, finished[0])
    assert dressage("train", "--run", path, "--resume").exit_code == 0


def test_without_an_older_checkpoint_a_damaged_one_says_so(dressage, tmp_path, monkeypatch):
    path = tmp_path / "run"
    interrupt_emit(monkeypatch, 13, raise_killed)
    with pytest.raises(Killed):
        dressage("train", "pendulum", *SHORT, "--no-film", "--run", path)
    damage(path / "checkpoints" / "8")
    shown = dressage("train", "--run", path, "--resume")
    assert (shown.exit_code, "There is no older checkpoint" in shown.stderr) == (1, True)


def test_a_checkpoint_that_is_not_there_is_refused_with_those_that_are(finished, dressage):
    shown = dressage("train", "--run", finished[0], "--resume-from", "9")
    assert shown.exit_code == 2
    assert "has no checkpoint after 9 updates. It has: 16, 24, 32." in shown.stderr.replace("\n", " ")


def damage(checkpoint):
    for file in checkpoint.rglob("*"):
        if file.is_file():
            file.write_bytes(b"")


def test_a_run_without_a_policy_says_how_to_get_one(dressage, tmp_path, monkeypatch):
    path = tmp_path / "run"
    interrupt_emit(monkeypatch, 3, raise_killed)
    with pytest.raises(Killed):
        dressage("train", "pendulum", *SHORT, "--no-film", "--run", path)
    shown = dressage("evaluate", path)
    assert shown.exit_code == 2
    assert "has no policy yet" in shown.stderr
    assert dressage("report", path).exit_code == 0


def wait_for(condition, process):
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture(scope="module")
def long_run(dressage, tmp_path_factory):
    """A longer run that nobody disturbed."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    assert dressage("train", "pendulum", *LONG, "--run", path).exit_code == 0
    return path


@pytest.mark.slow
def test_a_killed_process_goes_on_and_ends_like_one_that_was_not(long_run, dressage, spawn, tmp_path):
    path = tmp_path / "run"
    process = spawn("train", "pendulum", *LONG, "--run", path)
    wait_for(lambda: any((path / "checkpoints").glob("[0-9]*")), process)
    time.sleep(random.uniform(0.0, 0.4))
    process.kill()
    assert process.wait() == -signal.SIGKILL
    process.communicate()
    assert dressage("train", "--run", path, "--resume", "--no-film").exit_code == 0
    assert_same_end(path, long_run)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_process_ends_with_130_and_goes_on(number, long_run, dressage, spawn, tmp_path):
    path = tmp_path / "run"
    process = spawn("train", "pendulum", *LONG, "--run", path)
    wait_for(lambda: (path / "metrics.jsonl").exists() and len(rows_of(path)) > 3, process)
    process.send_signal(number)
    told, complaints = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 130, complaints
    assert "all is saved" in told
    assert "Traceback" not in complaints
    assert dressage("train", "--run", path, "--resume", "--no-film").exit_code == 0
    assert_same_end(path, long_run)


@pytest.mark.slow
def test_an_environment_that_gives_nan_ends_the_process_with_1_and_a_sentence(spawn, tmp_path, monkeypatch):
    (tmp_path / "broken_task.py").write_text(BROKEN_TASK, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    process = spawn("train", "python:broken_task:make", *SHORT, "--run", tmp_path / "run")
    _, complaints = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1, complaints
    assert "reward" in complaints
    assert "Traceback" not in complaints


@pytest.mark.slow
def test_wrong_usage_ends_the_process_with_2_and_a_sentence(spawn, tmp_path):
    process = spawn("train", "pendulum", "--set", "GAMA=0.9", "--run", tmp_path / "run")
    _, complaints = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 2, complaints
    assert "PPO has no option 'GAMA'. Did you mean 'GAMMA'?" in complaints
    assert "Traceback" not in complaints


BROKEN_TASK = """
import dataclasses

import jax.numpy as jnp

from dressage.envs.suite.pendulum import Pendulum


@dataclasses.dataclass(frozen=True)
class Broken(Pendulum):
    def step(self, state, action):
        state, observation, reward, terminated, truncated, info = super().step(state, action)
        reward = jnp.where(state.velocity > 2.0, jnp.nan, reward)
        return state, observation, reward, terminated, truncated, info


def make():
    return Broken()
"""
