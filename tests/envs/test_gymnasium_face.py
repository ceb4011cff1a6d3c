"""A functional environment behind Gymnasium's interface."""

import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from dressage.envs import make, to_gymnasium_env
from dressage.envs.wrappers import AutoReset
from dressage.errors import ConfigError
from tests.envs.toys import Diary, Line


@pytest.mark.parametrize("name", ["pendulum", "cartpole"])
def test_gymnasiums_own_checker_finds_no_fault(name):
    env = to_gymnasium_env(make(name), render_mode="rgb_array")
    with warnings.catch_warnings():
        # It advises against unbounded observations and bounds other than ±1, which are Gymnasium's own.
        warnings.filterwarnings("ignore", message=".*(infinity|symmetric and normalized|spec).*")
        check_env(env)
    assert env.render().dtype == np.uint8


def test_the_time_limit_becomes_a_truncation():
    env = to_gymnasium_env(Line(max_steps=2))
    env.reset(seed=0)
    flags = [env.step(action)[2:4] for action in (1, 0)]
    assert flags == [(False, False), (False, True)]
    env.reset()
    assert env.step(1)[2:4] == (False, False)


def test_numbers_of_a_step_are_plain_and_the_info_is_the_environments():
    env = to_gymnasium_env(Line())
    env.reset(seed=0)
    observation, reward, terminated, truncated, info = [env.step(1) for _ in range(3)][-1]
    assert (observation.tolist(), reward, terminated, truncated) == ([3.0], 9.0, True, False)
    assert type(reward) is float and type(terminated) is bool and info["place"] == 3


def test_the_same_seed_gives_the_same_episode_and_another_seed_another():
    env = to_gymnasium_env(Diary())
    first = env.reset(seed=1)[0]
    assert env.reset(seed=1)[0].tolist() == first.tolist()
    assert env.reset(seed=2)[0].tolist() != first.tolist()
    assert env.reset()[0].tolist() != env.reset()[0].tolist()


def test_a_step_before_a_reset_is_refused():
    with pytest.raises(gymnasium.error.ResetNeeded, match="Call reset before step of Line"):
        to_gymnasium_env(Line()).step(0)


def test_an_unknown_render_mode_is_refused():
    with pytest.raises(ConfigError, match="Line knows the render modes \\[\\], got 'rgb_array'"):
        to_gymnasium_env(Line(), "rgb_array")


def test_an_environment_that_resets_itself_has_no_gymnasium_face():
    with pytest.raises(ConfigError, match="AutoReset resets itself; give the environment without AutoReset"):
        to_gymnasium_env(AutoReset(Line()))
