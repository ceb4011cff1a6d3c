"""What a run says of rsl_rl's configuration, and of errors in the user's own environment in torch."""

import json
import sys

import pytest
import yaml

torch = pytest.importorskip("torch")
pytest.importorskip("rsl_rl")

from dressage.cli.rsl_rl import RslRl  # noqa: E402
from tests.policy.rsl_rl_configs import ppo_config  # noqa: E402

SMALL = ("--steps", 64, "--set", "num_envs=4", "--set", "evaluations=0", "--quiet", "--no-film")

OWN_TASK = """from dressage.policy.torch_envs.pendulum import Pendulum


class Broken(Pendulum):
    def step(self, actions):
        return self.helper(actions)

    def helper(self, actions):
        return actions / {}["no key"]


def make(num_envs, seed):
    return Broken(num_envs=num_envs, seed=seed)


def make_nothing(num_envs, seed):
    raise OSError("no simulator")
"""


@pytest.fixture
def own_task(tmp_path, monkeypatch):
    """A module of the user's in the folder that the command is called from."""
    (tmp_path / "own_rsl_task.py").write_text(OWN_TASK, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield "rsl:python:own_rsl_task:"
    sys.modules.pop("own_rsl_task", None)


def test_what_a_configuration_leaves_out_is_shown_as_rsl_rls_own_default():
    config = ppo_config(desired_kl=None, schedule="fixed") | {"obs_groups": {"actor": ["policy"]}}
    left_out = (
        *("algorithm.entropy_coef", "algorithm.desired_kl", "critic.distribution_cfg", "actor.hidden_dims"),
        "obs_groups.critic",
    )
    changed = {f"rsl_rl.{path}": None for path in left_out} | {"num_envs": 4, "rsl_rl.run_name": "mine"}
    assert RslRl().told_changes(changed, {"rsl_rl": config}) == {
        "rsl_rl.algorithm.entropy_coef": 0.01,  # rsl_rl's PPO; dressage's own configuration has 0.005
        "rsl_rl.algorithm.desired_kl": None,  # as it is written there
        "rsl_rl.critic.distribution_cfg": None,
        "rsl_rl.actor.hidden_dims": [16, 16],
        "rsl_rl.obs_groups.critic": "the environment's group 'critic', else 'policy'",
        "num_envs": 4,
    }


def test_entries_without_effect_are_told_with_what_has_it_and_are_no_changes(dressage, tmp_path):
    config = tmp_path / "config.yaml"
    unused = {"seed": 5, "max_iterations": 1500, "clip_actions": 1.0, "experiment_name": "mine"}
    config.write_text(yaml.safe_dump(ppo_config() | unused))
    shown = dressage("train", "rsl:pendulum", "--config", config, *SMALL, "--run", tmp_path / "run")
    assert shown.exit_code == 0, shown.output
    flat = " ".join(shown.output.split())
    assert "Not used: seed=5 of rsl_rl's configuration. Say --seed." in flat
    assert "Not used: max_iterations=1500 of rsl_rl's configuration. Say --steps" in flat
    assert "Not used: clip_actions=1.0 of rsl_rl's configuration. Clip them in the environment" in flat
    record = json.loads((tmp_path / "run" / "config.json").read_text())
    assert not [path for path in record["changed"] if path.removeprefix("rsl_rl.") in unused]
    assert record["changed"]["rsl_rl.algorithm.entropy_coef"] == 0.01
    assert None not in record["changed"].values()


def test_an_error_of_the_users_environment_names_its_line(dressage, own_task, tmp_path):
    shown = dressage("train", own_task + "make", *SMALL, "--run", tmp_path / "run")
    assert shown.exit_code == 1 and "Traceback" not in shown.output
    flat = " ".join(shown.output.split())
    assert "step 0: step raised KeyError: 'no key' (own_rsl_task.py:9, in helper)" in flat
    shown = dressage("train", own_task + "make_nothing", *SMALL, "--run", tmp_path / "other")
    flat = " ".join(shown.output.split())
    assert "raised OSError: no simulator (own_rsl_task.py:17, in make_nothing)" in flat


@pytest.mark.slow
def test_an_error_in_a_worker_process_names_its_line(dressage, own_task, tmp_path):
    shown = dressage("train", own_task + "make", *SMALL, "--workers", 2, "--run", tmp_path / "run")
    flat = " ".join(shown.output.split())
    assert shown.exit_code == 1 and "raised KeyError: 'no key' (own_rsl_task.py:9, in helper)" in flat
