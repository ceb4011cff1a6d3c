"""What an environment must keep, found out before anything runs."""

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.envs import check_environment, make
from dressage.envs.spaces import Box, Discrete
from dressage.envs.wrappers import AutoReset
from dressage.errors import EnvironmentContractError, UnsupportedSpaceError
from tests.envs.toys import Diary, Line


@pytest.mark.parametrize(
    "env", [Diary(), Line(), make("pendulum"), make("cartpole"), AutoReset(Diary())], ids=repr
)
def test_a_sound_environment_passes_and_its_spaces_come_back(env):
    observation_space, _ = check_environment(env)
    assert isinstance(observation_space, Box)


def test_gymnasiums_spaces_are_accepted():
    class Foreign(Line):
        def observation_space(self, state):
            return gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32)

        def action_space(self, state):
            return gymnasium.spaces.Discrete(2)

    assert check_environment(Foreign())[1] == Discrete(2)


def altered(place, value):
    """A Line whose `step` returns something else at one place."""

    class Altered(Line):
        def step(self, state, action):
            items = list(super().step(state, action))
            items[place] = value
            return tuple(items)

    return Altered()


STATE, OBSERVATION, REWARD, TERMINATED, TRUNCATED, INFO = range(6)


@pytest.mark.parametrize(
    ("env", "match"),
    [
        (
            altered(STATE, {"place": 0.5}),
            r"state\['place'\] is int32\[\] after reset and float32\[\] after step",
        ),
        (
            altered(STATE, {"where": 1}),
            "Altered.step must return a state of the structure that reset returns",
        ),
        (
            altered(OBSERVATION, jnp.zeros(2)),
            r"Altered.step returned an observation of shape \(2,\); its space has \(1,\)",
        ),
        (altered(OBSERVATION, jnp.zeros(1, int)), "observation of dtype int32; its space has float32"),
        (altered(OBSERVATION, {"a": jnp.zeros(1)}), "must return an observation in Box.*got a dict"),
        (
            altered(REWARD, jnp.zeros(1)),
            r"Altered.step must return a real scalar as reward, got float32\[1\]",
        ),
        (altered(REWARD, True), r"must return a real scalar as reward, got bool\[\]"),
        (altered(TERMINATED, 0.0), r"must return a boolean scalar as terminated, got float32\[\]"),
        (altered(TRUNCATED, jnp.zeros(2, bool)), r"must return a boolean scalar as truncated, got bool\[2\]"),
        (altered(INFO, jnp.zeros(2)), "Altered.step must return a dict as info"),
    ],
)
def test_a_wrong_item_of_a_step_is_named_with_what_was_expected(env, match):
    with pytest.raises(EnvironmentContractError, match=match):
        check_environment(env)


class OldStep(Line):
    def step(self, state, action):
        return super().step(state, action)[:4]


class OldReset(Line):
    def reset(self, rng):
        return super().reset(rng)[1]


class Limitless(Line):
    max_steps = None


class FloatLimit(Line):
    max_steps = 2.5


@pytest.mark.parametrize(
    ("env", "match"),
    [
        (OldStep(), r"OldStep.step must return \(state, observation, reward, .*got 4 items"),
        (OldReset(), r"OldReset.reset must return \(state, observation, info\), got a ShapeDtypeStruct"),
        (Limitless(None), r"Limitless.max_steps must be an integer >= 1 \(.*got None"),
        (FloatLimit(2.5), "FloatLimit.max_steps must be an integer >= 1"),
        (Line(0), "Line.max_steps must be an integer >= 1"),
        ("cartpole", "An environment must derive from BaseEnv, got str"),
    ],
)
def test_a_wrong_form_is_named(env, match):
    with pytest.raises(EnvironmentContractError, match=match):
        check_environment(env)


@pytest.mark.parametrize("which", ["observation_space", "action_space"])
def test_an_unsupported_space_is_named_with_its_place(which):
    odd = type("Odd", (Line,), {which: lambda self, state: gymnasium.spaces.Text(3)})
    with pytest.raises(UnsupportedSpaceError, match=f"Odd.{which}: The space Text.* is not supported here"):
        check_environment(odd())


def test_a_space_without_numbers_is_refused():
    empty = type("Empty", (Line,), {"observation_space": lambda self, state: Box(0, 1, (0,))})
    with pytest.raises(
        UnsupportedSpaceError, match=r"Empty.observation_space: a space of shape \(0,\) holds no"
    ):
        check_environment(empty())


def test_an_environment_that_resets_itself_must_keep_the_final_observation():
    class Forgets(Line):
        resets_itself = True

    with pytest.raises(
        EnvironmentContractError, match=r"keep what the action led to in info\['final_observation'\]"
    ):
        check_environment(Forgets())
