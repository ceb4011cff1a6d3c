import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from dressage.errors import ConfigError, MissingExtraError
from dressage.policy.torch_envs import catalog
from dressage.policy.torch_envs.catalog import HOPPER, PENDULUM, SHIPPED, is_torch_task, torch_task

needs_torch = pytest.mark.skipif(find_spec("rsl_rl") is None, reason="rsl_rl is not installed")


def two_pendulums(num_envs, seed):
    from dressage.policy.torch_envs.pendulum import Pendulum

    return Pendulum(num_envs=num_envs, seed=seed)


def test_names_and_configurations_are_known_without_torch():
    loaded = "import sys, dressage.policy.torch_envs.catalog; print('torch' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "False"


def test_only_names_behind_the_prefix_are_torch_tasks():
    assert is_torch_task("rsl:pendulum") and not is_torch_task("pendulum")


@needs_torch
@pytest.mark.parametrize("task", SHIPPED.values(), ids=list(SHIPPED))
def test_a_shipped_task_names_every_number_that_its_actor_takes_and_gives(task):
    env = task.make(1, seed=0)
    seen = sum(env.get_observations()[group].shape[1] for group in task.config["obs_groups"]["actor"])
    assert (len(task.signals.observation), len(task.signals.action)) == (seen, env.num_actions)
    assert task.signals.control_period_s == env.step_dt


@needs_torch
@pytest.mark.parametrize("task", SHIPPED.values(), ids=list(SHIPPED))
def test_a_shipped_task_makes_its_copies_and_its_configuration_fits_them(task):
    from dressage.policy import PolicyConfig, PolicyRole, TrainConfig
    from dressage.policy.rsl_rl_policy.rsl_rl_policy import RSLRLPolicy
    from dressage.policy.rsl_rl_policy.vec_env import VecEnvRollouts

    env = task.make(task.num_envs, seed=0)
    assert env.num_envs == task.num_envs
    learner = RSLRLPolicy(PolicyConfig(policy_kwargs=task.config), PolicyRole.TRAIN)
    learner.init_train(TrainConfig(), VecEnvRollouts(env).meta())
    assert learner.num_steps == 24


@needs_torch
def test_a_registered_gymnasium_environment_is_a_torch_task():
    env = torch_task("rsl:gymnasium:Pendulum-v1").make(2, seed=0)
    assert env.num_envs == 2
    env.close()


@needs_torch
def test_a_function_of_the_users_own_makes_a_torch_task():
    env = torch_task(f"rsl:python:{__name__}:two_pendulums").make(5, seed=0)
    assert env.num_envs == 5


@needs_torch
def test_names_that_lead_nowhere_are_refused():
    with pytest.raises(ConfigError, match="Gymnasium makes no 'Nothing-v0'"):
        torch_task("rsl:gymnasium:Nothing-v0").make(1, seed=0)
    with pytest.raises(ConfigError, match="rsl:python:no_such_module:make leads nowhere"):
        torch_task("rsl:python:no_such_module:make").make(1, seed=0)


def test_a_misspelled_task_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match="no torch task 'rsl:pendulm'. Did you mean 'rsl:pendulum'"):
        torch_task("rsl:pendulm")


def test_without_torch_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(catalog, "find_spec", lambda name: None)
    with pytest.raises(
        MissingExtraError, match=r"need torch, tensordict, rsl_rl.*pip install 'dressage\[rsl\]'"
    ):
        PENDULUM.make(1, seed=0)


@needs_torch
def test_pictures_show_where_rod_and_leg_are():
    from dressage.policy.torch_envs import drawing, hopper

    up, down = (drawing.draw_pendulum(np.array([angle, 0.0, 0.0])) for angle in (0.0, np.pi))
    assert up.shape == (304, 304, 3) and up.dtype == np.uint8
    red = [np.argwhere((p == drawing.ROD).all(axis=2))[:, 0].mean() for p in (up, down)]
    assert red[0] < 144 < red[1]
    state = np.zeros(11)
    state[[hopper.HEIGHT, hopper.LENGTH]] = 0.8, 0.7
    low = drawing.draw_hopper(state)
    state[hopper.HEIGHT] = 1.1
    high = drawing.draw_hopper(state)
    blue = [np.argwhere((p == drawing.CART).all(axis=2))[:, 0].mean() for p in (low, high)]
    assert low.shape == (240, 400, 3) and blue[0] - blue[1] == pytest.approx(0.3 * 130, abs=1.0)


def test_the_hopper_gives_its_critic_more_than_its_actor():
    assert HOPPER.config["obs_groups"] == {"actor": ["policy"], "critic": ["policy", "critic"]}
