"""Workers on a real local Ray cluster of two CPUs."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from dressage.errors import ConfigError, DressageError, NonFiniteError, WorkerLostError
from dressage.runtime import Engine, RuntimeConfig
from dressage.workers import make_workers
from tests.process_watch import is_there, wait_until
from tests.runtime.test_process_workers import LEARNER
from tests.runtime.toys import STEPS, FailingWalk, Rows, spec
from tests.workers.parallel_toys import Counting, Exiting, Hanging, Raising
from tests.workers.test_worker_processes import everything_of

ray = pytest.importorskip("ray")

from dressage.runtime.ray_cluster import Cluster  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    # Ray 2.60 leaves sockets and log files to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
]


@pytest.fixture(scope="module")
def cluster():
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def train(updates, made=None, rows=None, **options):
    sinks = () if rows is None else (rows,)
    with Engine(made or spec(), RuntimeConfig(**{"address": "local", **options}), sinks=sinks) as engine:
        report = engine.run(updates)
        return engine.learner.parameters, report


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("workers", [1, 2])
def test_ray_learns_bit_for_bit_what_one_process_learns(workers):
    inline, _ = train(4, workers=workers, address=None, transport="inline", seed=2)
    apart, report = train(4, workers=workers, seed=2)
    for name, array in inline.items():
        np.testing.assert_array_equal(apart[name], array)
    assert report.steps == 4 * workers * 3 * STEPS


@pytest.mark.usefixtures("cluster")
def test_a_killed_actor_is_replaced_and_its_fragment_counted(tmp_path):
    rows = Rows()
    _, report = train(4, spec(FailingWalk(str(tmp_path / "once"), "kill")), rows)
    last = rows.of("train")[-1]
    assert report.updates == 4
    assert last["runtime/lost_workers"] == last["runtime/restarts"] == 1
    assert last["runtime/dropped_steps"] == 3 * STEPS
    assert last["runtime/collected_steps"] == last["runtime/used_steps"] + last["runtime/dropped_steps"]
    event = rows.of("event")[1]
    assert "Worker 0 (Ray) ended while collecting a fragment" in event["event"]
    assert event["seed"] > 0


@pytest.mark.usefixtures("cluster")
def test_past_the_budget_the_lost_actor_is_named(tmp_path):
    failing = FailingWalk(str(tmp_path / "always"), "exit", step=2, always=True)
    with pytest.raises(
        WorkerLostError, match=r"Worker 0 \(Ray\) ended .* made 1 restarts, all that restart_budget"
    ):
        train(4, spec(failing), restart_budget=1)


@pytest.mark.usefixtures("cluster")
def test_a_hung_actor_is_named_after_its_time(tmp_path):
    with pytest.raises(WorkerLostError, match=r"Worker 0 \(Ray\) gave no answer within 3 s while collecting"):
        train(2, spec(FailingWalk(str(tmp_path / "once"), "hang", step=3)), timeout_s=3.0)


@pytest.mark.usefixtures("cluster")
def test_what_is_not_finite_is_named_or_dropped(tmp_path):
    failing = FailingWalk(str(tmp_path / "once"), "reward", step=3)
    with pytest.raises(
        NonFiniteError, match="Worker 0, environment walk, copy 1, step 2 .*reward is not finite"
    ):
        train(2, spec(failing))
    rows = Rows()
    train(2, spec(FailingWalk(str(tmp_path / "again"), "reward", step=3)), rows, non_finite="quarantine")
    assert rows.of("train")[-1]["runtime/quarantined_fragments"] == 1


@pytest.mark.usefixtures("cluster")
def test_an_asynchronous_run_on_ray_accounts_for_every_step():
    rows = Rows()
    train(6, spec(rollout_mode="async"), rows, workers=2)
    for row in rows.of("train"):
        assert row["runtime/collected_steps"] == row["runtime/used_steps"] + row["runtime/dropped_steps"]
        assert row["runtime/lag_max"] <= 1


@pytest.mark.usefixtures("cluster")
def test_a_resumed_run_on_ray_equals_the_uninterrupted_one(tmp_path):
    whole, _ = train(4, address=None)
    config = RuntimeConfig(address="local")
    with Engine(spec(), config, folder=tmp_path) as engine:
        engine.run(2)
    with Engine(spec(), config, folder=tmp_path) as engine:
        assert engine.resume() == 2
        engine.run(4)
        np.testing.assert_array_equal(engine.learner.parameters["mean"], whole["mean"])


def zeros(copies):
    return [np.zeros((1, copies), np.int64), np.zeros((1, copies, 2))]


@pytest.mark.usefixtures("cluster")
def test_host_environments_step_on_ray_as_they_do_here():
    from dressage.runtime.ray_workers import make_ray_workers

    with make_workers(Counting, 3) as here, make_ray_workers(Counting, 3, num_workers=2) as there:
        both = everything_of(here), everything_of(there)
    assert len(both[0]) == len(both[1])
    for one, other in zip(*both, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("environment", "kind", "words"),
    [
        (Exiting, WorkerLostError, r"Worker 0 \(Ray, environment copies 0 to 1\) ended while stepping"),
        (Hanging, WorkerLostError, r"Worker 0 .* gave no answer within 3 s while stepping"),
        (Raising, DressageError, r"copy 0, step 1 .*KeyError: 'no such wheel'"),
    ],
)
def test_host_environments_that_fail_on_ray_are_named(environment, kind, words):
    from dressage.runtime.ray_workers import make_ray_workers

    group = make_ray_workers(environment, 2, num_workers=1, timeout=3.0)
    group.reset(range(2))
    group.step(zeros(2))
    with pytest.raises(kind, match=words):
        group.step(zeros(2))


def test_more_actors_than_copies_are_refused():
    from dressage.runtime.ray_workers import make_ray_workers

    with pytest.raises(ConfigError, match="from 1 to num_envs, got 3 of 2"):
        make_ray_workers(Counting, 2, num_workers=3)


def of_ray():
    """Return the processes of Ray that run on this machine."""
    commands = {int(name): command_of(name) for name in os.listdir("/proc") if name.isdigit()}
    parts = (b"raylet", b"gcs_server", b"ray::")
    return {pid for pid, command in commands.items() if any(part in command for part in parts)}


def command_of(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # gone meanwhile
        return b""


def test_a_killed_learner_leaves_no_actor_and_no_cluster_and_the_run_resumes(tmp_path):
    before = of_ray()
    script = tmp_path / "learner.py"
    script.write_text(LEARNER)
    folder = tmp_path / "run"
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, str(script), str(folder), "ray"]
    with subprocess.Popen(command, env=paths, stdout=subprocess.PIPE, text=True) as learner:
        actors = {int(pid) for pid in learner.stdout.readline().split()}
        assert len(actors) == 2
        assert wait_until(lambda: folder.is_dir() and len(list(folder.glob("update_*[0-9]"))) >= 2, 60)
        assert actors < of_ray() - before
        learner.kill()
        killed = time.monotonic()
    assert learner.returncode == -signal.SIGKILL
    assert wait_until(lambda: not {pid for pid in of_ray() - before if is_there(pid)}, 30)
    assert time.monotonic() - killed <= 30
    resumed = subprocess.run(
        [*command, "resume"], env=paths, capture_output=True, text=True, timeout=180, check=True
    )
    assert int(resumed.stdout.split()[1]) >= 2
    assert wait_until(lambda: not {pid for pid in of_ray() - before if is_there(pid)}, 30)


def test_a_head_that_lets_nobody_in_is_named_with_what_it_may_want(monkeypatch):
    def turn_away(**options):
        raise ConnectionError("Failed to connect to Ray cluster at 10.0.0.1:6379.")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", turn_away)
    monkeypatch.setattr("dressage.runtime.ray_cluster.check_head", lambda address, timeout: None)
    with pytest.raises(
        DressageError, match=r"'10\.0\.0\.1:6379' .*the same one, or set RAY_AUTH_MODE=disabled"
    ):
        Cluster("10.0.0.1:6379", workers=1, timeout=1.0)


TWO_RAISE = """
import sys
import time
from tests.runtime.toys import FailingWalk, spec
from dressage.errors import EnvironmentRaisedError
from dressage.runtime import Engine, RuntimeConfig

failing = spec(FailingWalk(sys.argv[1], "raise", step=3, always=True))
with Engine(failing, RuntimeConfig(address="local", workers=2)) as engine:
    try:
        engine.run(3)
    except EnvironmentRaisedError as error:
        print(error)
    time.sleep(2)  # The other worker's answer arrives, and nobody asks for it.
"""


def test_where_two_workers_raise_the_first_is_told_and_ray_prints_nothing_of_the_other(tmp_path):
    script = tmp_path / "two_raise.py"
    script.write_text(TWO_RAISE)
    root = Path(__file__).parents[2]
    ended = subprocess.run(
        [sys.executable, script, tmp_path / "always"],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert "step raised ValueError: the track ends here" in ended.stdout
    assert "Unhandled error" not in ended.stderr + ended.stdout
