"""Gymnax environments: equal to gymnax's own steps, without its reset and with its time limit kept apart."""

import sys

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.envs import VectorEnv, check_environment, from_gymnax, make
from dressage.envs.spaces import Box, Discrete
from dressage.errors import ConfigError, MissingExtraError

# Its constructor downloads a data set.
OFFLINE = [name for name in gymnax.registered_envs if name != "MNISTBandit-bsuite"]


@pytest.mark.parametrize("name", OFFLINE)
def test_every_gymnax_environment_keeps_our_contract(name):
    env = make(f"gymnax:{name}")
    observation_space, action_space = check_environment(env)
    assert isinstance(observation_space, Box | Discrete) and isinstance(action_space, Box | Discrete)
    assert env.max_steps >= 1


def test_steps_equal_those_of_gymnaxs_own_step_without_its_reset():
    peer, params = gymnax.make("CartPole-v1")
    env = from_gymnax("CartPole-v1")
    state, observation, _ = env.reset(jax.random.key(0))
    inner, step = state.inner, jax.jit(env.step)
    for t in range(30):
        state, observation, reward, terminated, truncated, info = step(state, 1)
        shown, inner, peer_reward, peer_terminated, peer_truncated, peer_info = peer.step(
            jax.random.key(t), inner, 1, params
        )
        np.testing.assert_allclose(observation, peer_info["final_observation"], atol=1e-5)
        assert (float(reward), bool(terminated)) == (float(peer_reward), bool(peer_terminated))
        assert bool(truncated) == bool(peer_truncated)
        assert float(info["discount"]) == float(peer_info["discount"])
        if terminated:
            break
    assert terminated and not np.allclose(observation, shown)


def test_gymnaxs_time_limit_is_a_truncation_and_no_termination():
    env = make("gymnax:MountainCar-v0", max_steps=4)
    vector = VectorEnv(env, 2)

    @jax.jit
    def rollout(key):
        state, _ = vector.reset(key)
        return jax.lax.scan(vector.step, state, jnp.ones((9, 2), jnp.int32))[1]

    steps = rollout(jax.random.key(0))
    assert np.flatnonzero(steps.truncated[:, 0]).tolist() == [3, 7]
    assert not steps.terminated.any()
    ended = np.asarray(steps.ended)
    assert (steps.observation[ended] != steps.final_observation[ended]).any(axis=-1).all()


def test_a_stochastic_environment_draws_anew_at_every_step():
    env = from_gymnax("SimpleBandit-bsuite")
    bandit = make("gymnax:BernoulliBandit-misc")
    state, _, _ = bandit.reset(jax.random.key(1))
    _, (rewards) = jax.jit(lambda s: jax.lax.scan(lambda c, _: bandit.step(c, 0)[::2][:2], s, length=40))(
        state
    )
    assert env.max_steps == 100 and set(np.asarray(rewards).tolist()) == {0.0, 1.0}


def test_parameters_may_be_changed_by_name():
    env = make("gymnax:CartPole-v1", gravity=5.0, max_steps=20)
    assert (env.params.gravity, env.max_steps, env.params.max_steps_in_episode) == (5.0, 20, 20)


def test_a_ready_gymnax_environment_is_adapted_too():
    peer, params = gymnax.make("Pendulum-v1")
    assert from_gymnax(peer).max_steps == 200
    assert from_gymnax(peer, params.replace(max_steps_in_episode=9)).max_steps == 9


@pytest.mark.parametrize("steps", [0, 1.5, True])
def test_a_wrong_time_limit_of_a_gymnax_environment_is_refused(steps):
    with pytest.raises(ConfigError, match="from_gymnax needs max_steps as an integer >= 1"):
        from_gymnax("CartPole-v1", max_steps=steps)


def test_without_gymnax_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnax", None)
    with pytest.raises(
        MissingExtraError, match=r"gymnax cannot be imported .*pip install 'dressage\[envs\]'"
    ):
        from_gymnax("CartPole-v1")
