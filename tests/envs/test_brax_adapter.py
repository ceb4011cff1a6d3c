"""Brax environments: raw, so that final observations survive and a time limit is no end."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.envs import VectorEnv, check_environment, from_brax, make
from dressage.errors import ConfigError, MissingExtraError, UnsupportedSpaceError

# Brax says that it is no longer maintained, one of its dependencies says the same of itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Brax System:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def test_braxs_quickest_environment_steps_with_our_time_limit_and_reset():
    env = make("brax:fast", max_steps=3)
    assert check_environment(env)[0].shape == (2,)
    vector = VectorEnv(env, 2)

    @jax.jit
    def rollout(key):
        state, _ = vector.reset(key)
        return jax.lax.scan(vector.step, state, jnp.ones((7, 2, 1)))[1]

    steps = rollout(jax.random.key(0))
    assert np.flatnonzero(steps.truncated[:, 0]).tolist() == [2, 5]
    assert not steps.terminated.any()
    # Speed grows by 0.02 a step and the place by speed times 0.02.
    np.testing.assert_allclose(steps.final_observation[2, 0], [0.02**2 * 6, 0.06], rtol=1e-5)
    np.testing.assert_allclose(steps.observation[2, 0], [0, 0])
    np.testing.assert_allclose(steps.reward[:3, 0], 0.02**2 * np.array([1, 3, 6]), rtol=1e-5)


@pytest.mark.slow
def test_a_physical_brax_environment_terminates_with_its_final_observation():
    env = make("brax:inverted_pendulum", backend="generalized", max_steps=50)
    vector = VectorEnv(env, 2)

    @jax.jit
    def rollout(key):
        state, _ = vector.reset(key)
        return jax.lax.scan(vector.step, state, jnp.ones((60, 2, 1)))[1]

    steps = rollout(jax.random.key(0))
    ended = np.asarray(steps.terminated)
    # Brax ends the episode where the pole leans by more than 0.2 rad.
    assert ended.any() and (np.abs(steps.final_observation[ended][:, 1]) > 0.2).all()
    assert (np.abs(steps.observation[ended][:, 1]) < 0.02).all()


def test_braxs_own_wrappers_are_taken_off():
    from brax import envs

    wrapped = envs.create("fast", episode_length=10)
    assert from_brax(wrapped).env is wrapped.unwrapped


def test_an_observation_of_several_parts_is_refused():
    from brax import envs

    env = from_brax(envs.get_environment("fast", obs_mode="dict_state"))
    with pytest.raises(UnsupportedSpaceError, match="brax:Fast observes a dict; one array is needed"):
        check_environment(env)


def test_an_unknown_brax_environment_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="brax has no environment 'hoper'. Did you mean 'hopper'"):
        from_brax("hoper")


@pytest.mark.parametrize("steps", [0, 2.5, True])
def test_a_wrong_time_limit_of_a_brax_environment_is_refused(steps):
    with pytest.raises(ConfigError, match="from_brax needs max_steps as an integer >= 1"):
        from_brax("fast", max_steps=steps)


def test_a_backend_goes_with_a_name_alone():
    with pytest.raises(ConfigError, match="backend='spring' cannot be given"):
        from_brax(from_brax("fast").env, backend="spring")


def test_without_brax_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "brax.envs", None)
    with pytest.raises(MissingExtraError, match=r"brax cannot be imported .*pip install 'dressage\[envs\]'"):
        from_brax("fast")
