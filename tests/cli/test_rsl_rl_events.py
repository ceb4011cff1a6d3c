"""What a run of torch tasks tells of its workers: in its rows, at the terminal, in summary and report."""

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import yaml

torch = pytest.importorskip("torch")
pytest.importorskip("rsl_rl")

from dressage.cli.rsl_rl import RslRl  # noqa: E402
from dressage.policy.torch_envs.catalog import torch_task  # noqa: E402
from dressage.policy.torch_envs.pendulum import Pendulum  # noqa: E402
from dressage.reporting.metric_rows import of_kind, read_rows  # noqa: E402
from tests.policy.rsl_rl_configs import ppo_config  # noqa: E402

UPDATE = 4 * 8
"""Environment steps of one update of the small runs."""

MARK = "DRESSAGE_TEST_MARK"
"""Environment variable with the path of a file that says that a fault has happened."""


def is_first(mark):
    """Set the mark, whichever of several processes comes first."""
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class Faulty(Pendulum):
    """Fails once, at the tenth step of the first copies that get there."""

    def step(self, actions):
        self.count = getattr(self, "count", 0) + 1
        answer = super().step(actions)
        if self.count == 10 and is_first(Path(os.environ[MARK])):
            self.fail(answer[1])
        return answer


class Broken(Faulty):
    def fail(self, rewards):
        rewards[0] = torch.nan


class Killed(Faulty):
    def fail(self, rewards):
        os.kill(os.getpid(), signal.SIGKILL)


def make_broken(num_envs, seed):
    return Broken(num_envs=num_envs, seed=seed)


def make_killed(num_envs, seed):
    return Killed(num_envs=num_envs, seed=seed)


@pytest.fixture(autouse=True)
def mark(tmp_path, monkeypatch):
    monkeypatch.setenv(MARK, str(tmp_path / "mark"))


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(ppo_config()))
    return path


def words(config, folder, *settings):
    given = ("num_envs=4", "evaluations=0", *settings)
    sets = [word for setting in given for word in ("--set", setting)]
    return ("--config", config, "--steps", 4 * UPDATE, *sets, "--quiet", "--no-film", "--run", folder)


def test_counts_of_several_updates_stand_where_the_engines_own_stand():
    algorithm = RslRl()
    given = {"total_timesteps": 8 * UPDATE, "num_envs": 4, "rsl_rl": ppo_config(), "non_finite": "quarantine"}
    task = torch_task(f"rsl:python:{__name__}:make_broken")
    run = algorithm.make_run(task, algorithm.resolve(given), (3,))
    try:
        state, metrics = run.advance(run.init(), 5)
        counters = state[0].engine.counters
        found = {name: metrics[name][0] for name in counters.metrics()}
        assert found == counters.metrics()
        assert (counters.restarts, counters.used_steps, counters.dropped_steps) == (1, 5 * UPDATE, UPDATE)
        assert "steps_per_second" not in metrics  # The row's own is of all seeds together.
        started, restarted = algorithm.events(run)
        assert started["event"] == "exact resume: yes"
        assert restarted["event"].startswith(f"worker 0 begins anew with seed {restarted['seed']}: ")
        assert algorithm.events(run) == []
    finally:
        algorithm.close_run(run)


def test_of_several_seeds_an_event_says_which_it_belongs_to():
    algorithm = RslRl()
    given = {"num_envs": 4, "rsl_rl": ppo_config(), "evaluations": 0}
    run = algorithm.make_run(torch_task("rsl:pendulum"), algorithm.resolve(given), (3, 5))
    try:
        run.advance(run.init(), 1)
        assert [event["of_seed"] for event in algorithm.events(run)] == [3, 5]
    finally:
        algorithm.close_run(run)


def test_a_worker_that_begins_anew_is_told_everywhere(dressage, config, tmp_path):
    task, folder = f"rsl:python:{__name__}:make_broken", tmp_path / "run"
    shown = dressage("train", task, *words(config, folder, "non_finite=quarantine"))
    assert shown.exit_code == 0, shown.output
    rows = read_rows(folder / "metrics.jsonl")
    started, restarted = of_kind(rows, "event")
    assert (rows[0], started["event"], started["updates"]) == (started, "exact resume: yes", 0)
    assert restarted["worker"] == 0 and restarted["seed"] not in (0, None)
    assert f"worker 0 begins anew with seed {restarted['seed']}: Worker 0, environment" in restarted["event"]
    flat = " ".join(shown.output.split())
    assert restarted["event"] in flat
    assert "workers 0 lost, 1 made anew" in flat
    assert json.loads((folder / "summary.json").read_text())["workers"] == {"lost": 0, "restarts": 1}
    assert "0 lost, 1 made anew" in (folder / "report.html").read_text()


def test_what_led_to_the_end_of_a_run_is_in_its_rows(dressage, config, tmp_path):
    task, folder = f"rsl:python:{__name__}:make_broken", tmp_path / "run"
    shown = dressage("train", task, *words(config, folder))
    assert shown.exit_code == 1 and "reward is not finite" in shown.output
    assert [row["event"] for row in of_kind(read_rows(folder / "metrics.jsonl"), "event")] == [
        "exact resume: yes"
    ]


@pytest.mark.slow
def test_a_killed_worker_process_is_told_and_the_last_row_agrees_with_the_checkpoint(
    dressage, config, tmp_path
):
    task, folder = f"rsl:python:{__name__}:make_killed", tmp_path / "run"
    shown = dressage("train", task, *words(config, folder, "workers=2"))
    assert shown.exit_code == 0, shown.output
    rows = read_rows(folder / "metrics.jsonl")
    assert "SIGKILL" in of_kind(rows, "event")[-1]["event"]
    assert "1 lost, 1 made anew" in " ".join(shown.output.split())
    counters = json.loads((folder / "checkpoints" / "4" / "0" / "run.json").read_text())["counters"]
    last = of_kind(rows, "train")[-1]
    assert {name: last[f"runtime/{name}"] for name in counters} == counters
    assert counters["lost_workers"] == 1
    np.testing.assert_allclose(last["runtime/collected_steps"], 4 * UPDATE + UPDATE / 2)
