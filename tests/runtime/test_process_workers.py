"""Workers in processes learn what one process learns; those that fail are replaced or named."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from dressage.errors import ConfigError, DressageError, NonFiniteError, WorkerLostError
from dressage.policy import EnvMeta
from dressage.runtime import Engine, RuntimeConfig
from tests.process_watch import is_there, wait_until
from tests.runtime.toys import STEPS, FailingWalk, LinearPolicy, Rows, Walk, spec


def train(updates, made=None, rows=None, **options):
    sinks = () if rows is None else (rows,)
    with Engine(made or spec(), RuntimeConfig(**options), sinks=sinks) as engine:
        report = engine.run(updates)
        return engine.learner.parameters, report


@pytest.mark.parametrize("workers", [1, 2])
def test_processes_learn_bit_for_bit_what_one_process_learns(workers):
    inline, _ = train(4, workers=workers, transport="inline", seed=2)
    apart, report = train(4, workers=workers, transport="processes", seed=2)
    for name, array in inline.items():
        np.testing.assert_array_equal(apart[name], array)
    assert report.steps == 4 * workers * 3 * STEPS


class SeedOf:
    """Makes walks whose name tells the seed that they were made with."""

    def __call__(self, seed):
        walk = Walk(seed)
        walk.meta = partial(EnvMeta, f"seed {seed}", num_envs=walk.num_envs)
        return walk


@pytest.mark.parametrize("transport", ["inline", "processes"])
def test_a_fragment_carries_the_seed_that_its_environment_was_made_with(transport):
    made = replace(spec(), make_env=SeedOf())
    with Engine(made, RuntimeConfig(workers=2, transport=transport, seed=5)) as engine:
        names = [hello.meta.env_id for hello in engine._hellos]
        learn, seen = engine.learner.update_dataset, []
        engine.learner.update_dataset = lambda fragments: (seen.extend(fragments), learn(fragments))
        engine.run(1)
    assert [f"seed {fragment.seed}" for fragment in seen] == names
    assert len(set(names)) == 2


def test_a_killed_worker_is_replaced_and_its_fragment_counted(tmp_path):
    rows = Rows()
    failing = FailingWalk(str(tmp_path / "once"), "kill")
    parameters, report = train(4, spec(failing), rows, workers=2)
    last = rows.of("train")[-1]
    assert report.updates == 4
    assert np.isfinite(parameters["mean"]).all()
    assert (
        1 <= last["runtime/lost_workers"] == last["runtime/restarts"] <= 2
    )  # both may die before it is marked
    assert last["runtime/dropped_steps"] == last["runtime/lost_workers"] * 3 * STEPS
    assert last["runtime/collected_steps"] == last["runtime/used_steps"] + last["runtime/dropped_steps"]
    assert last["runtime/used_steps"] == 4 * 2 * 3 * STEPS
    event = rows.of("event")[1]
    assert "ended with exit code -9 (SIGKILL) while collecting a fragment" in event["event"]
    assert event["seed"] > 0


def test_past_the_budget_the_lost_worker_is_named(tmp_path):
    failing = FailingWalk(str(tmp_path / "always"), "exit", step=2, always=True)
    with pytest.raises(
        WorkerLostError, match=r"Worker 0 \(pid \d+\) ended with exit code 3 .* made 1 restarts"
    ):
        train(4, spec(failing), workers=1, transport="processes", restart_budget=1)


def test_a_worker_that_is_killed_while_idle_is_replaced_too():
    rows = Rows()
    with Engine(spec(), RuntimeConfig(transport="processes"), sinks=[rows]) as engine:
        engine.run(1)
        (pid,) = engine.worker_pids
        os.kill(pid, signal.SIGKILL)
        assert wait_until(lambda: not is_there(pid))
        assert engine.run(3).updates == 3
    assert rows.of("train")[-1]["runtime/lost_workers"] == 1


def test_a_worker_that_died_before_a_checkpoint_is_replaced_and_the_checkpoint_written(tmp_path):
    def kill_one(row):
        (pid,) = engine.worker_pids
        os.kill(pid, signal.SIGKILL)
        return wait_until(lambda: not is_there(pid))

    with Engine(spec(), RuntimeConfig(transport="processes"), folder=tmp_path) as engine:
        assert engine.run(5, stop=kill_one).updates == 1
        assert engine.counters.lost_workers == engine.counters.restarts == 1
        assert engine.counters.dropped_steps == 0  # no fragment was under way
    assert [path.name for path in tmp_path.iterdir()] == ["update_00000001"]


def test_a_hung_worker_is_named_after_its_time(tmp_path):
    failing = FailingWalk(str(tmp_path / "once"), "hang", step=3)
    began = time.monotonic()
    with pytest.raises(
        WorkerLostError, match=r"Worker 0 \(pid \d+\) gave no answer within 2 s while collecting"
    ):
        train(2, spec(failing), workers=1, transport="processes", timeout_s=2.0)
    assert time.monotonic() - began < 60


def test_what_an_environment_raises_in_a_process_is_told(tmp_path):
    failing = FailingWalk(str(tmp_path / "once"), "reward", step=3)
    with pytest.raises(
        NonFiniteError, match="Worker 0, environment walk, copy 1, step 2 .*reward is not finite"
    ):
        train(2, spec(failing), workers=1, transport="processes")


def test_in_quarantine_a_process_goes_on_with_a_fresh_environment(tmp_path):
    rows = Rows()
    failing = FailingWalk(str(tmp_path / "once"), "reward", step=3)
    train(3, spec(failing), rows, workers=1, transport="processes", non_finite="quarantine")
    assert rows.of("train")[-1]["runtime/quarantined_fragments"] == 1


class RaisingPolicy(LinearPolicy):
    def rollout_step(self, env_ret):
        raise ZeroDivisionError("no such gain")


def test_what_a_policy_raises_in_a_process_is_told_with_its_trace():
    with pytest.raises(DressageError, match="Worker 0 raised ZeroDivisionError: no such gain") as caught:
        train(1, spec(policy=RaisingPolicy), workers=1, transport="processes")
    assert "rollout_step" in caught.value.__notes__[0]


def test_what_cannot_be_sent_is_refused_with_the_remedy():
    with pytest.raises(ConfigError, match="can't be sent to worker processes .*transport='inline'"):
        Engine(spec(lambda seed: Walk(seed)), RuntimeConfig(workers=2))


def test_an_asynchronous_run_in_processes_accounts_for_every_step():
    rows = Rows()
    _, report = train(6, spec(rollout_mode="async"), rows, workers=2, max_lag=2)
    assert report.updates == 6
    for row in rows.of("train"):
        assert row["runtime/collected_steps"] == row["runtime/used_steps"] + row["runtime/dropped_steps"]
        assert row["runtime/lag_max"] <= 2


def test_a_resumed_run_in_processes_equals_the_uninterrupted_one(tmp_path):
    whole, _ = train(5, workers=2)
    with Engine(spec(), RuntimeConfig(workers=2), folder=tmp_path) as engine:
        engine.run(2)
    with Engine(spec(), RuntimeConfig(workers=2), folder=tmp_path) as engine:
        assert engine.resume() == 2
        engine.run(5)
        np.testing.assert_array_equal(engine.learner.parameters["mean"], whole["mean"])


def test_closing_ends_every_process():
    engine = Engine(spec(), RuntimeConfig(workers=2))
    engine.run(1)
    started = set(engine.worker_pids)
    assert len(started) == 2
    assert all(is_there(pid) for pid in started)
    engine.close()
    engine.close()
    assert not any(is_there(pid) for pid in started)


LEARNER = """
import sys
from pathlib import Path
from dressage.runtime import Engine, RuntimeConfig
from tests.runtime.toys import spec

if __name__ == "__main__":
    config = RuntimeConfig(workers=2, transport=sys.argv[2], checkpoint_every=1)
    with Engine(spec(), config, folder=Path(sys.argv[1])) as engine:
        if "resume" in sys.argv:
            print("resumed", engine.resume(), flush=True)
            engine.run(engine.learner.version + 1)
            sys.exit(0)
        print(*engine.worker_pids, flush=True)
        engine.run(10**6)
"""


def test_a_killed_learner_leaves_no_process_and_the_run_resumes_from_its_last_checkpoint(tmp_path):
    script = tmp_path / "learner.py"
    script.write_text(LEARNER)
    folder = tmp_path / "run"
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, str(script), str(folder), "processes"]
    learner = subprocess.Popen(command, env=paths, stdout=subprocess.PIPE, text=True)
    with learner:
        pids = [int(pid) for pid in learner.stdout.readline().split()]
        assert len(pids) == 2
        assert wait_until(lambda: folder.is_dir() and len(list(folder.glob("update_*[0-9]"))) >= 2)
        learner.kill()
    assert learner.returncode == -signal.SIGKILL
    assert wait_until(lambda: not any(is_there(pid) for pid in pids))
    resumed = subprocess.run(
        [*command, "resume"], env=paths, capture_output=True, text=True, timeout=120, check=True
    )
    assert int(resumed.stdout.split()[1]) >= 2
