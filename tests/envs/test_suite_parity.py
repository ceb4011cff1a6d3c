"""Pendulum and CartPole equal Gymnasium's, step by step from shared states."""

import math

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.envs import can_render, make, render
from dressage.envs.suite.cartpole import CartPoleState
from dressage.envs.suite.pendulum import PendulumState
from dressage.envs.wrappers import AutoReset, ObservationHistory

RNG = np.random.default_rng(7)
SAMPLES = 400


def pendulum_states():
    # Angles beyond one turn, speeds at the limits, torques beyond the bounds.
    angles = RNG.uniform(-3 * math.pi, 3 * math.pi, SAMPLES)
    speeds = np.clip(RNG.uniform(-9, 9, SAMPLES), -8, 8)
    torques = RNG.uniform(-3, 3, SAMPLES).astype(np.float32)
    return np.stack([angles, speeds], axis=1), torques


def gymnasium_rows(env_id, states, actions):
    env = gymnasium.make(env_id).unwrapped
    rows = []
    for state, action in zip(states, actions, strict=True):
        env.reset(seed=0)
        env.state = state.copy()
        rows.append([*env.step(action)[:4], np.asarray(env.state)])
    return [np.stack(column) for column in zip(*rows, strict=True)]


def test_pendulum_equals_gymnasium_from_shared_states():
    states, torques = pendulum_states()
    env = make("pendulum")
    observation, reward, terminated, truncated, state = gymnasium_rows(
        "Pendulum-v1", states, torques[:, None]
    )
    wrapped = (states[:, 0] + math.pi) % (2 * math.pi) - math.pi
    ours = PendulumState(jnp.asarray(wrapped), jnp.asarray(states[:, 1]), jnp.zeros(SAMPLES))
    after, got, got_reward, got_terminated, got_truncated, _ = jax.jit(
        jax.vmap(env.step, out_axes=(0, 0, 0, None, None, 0))
    )(ours, torques[:, None])
    np.testing.assert_allclose(got, observation, atol=1e-5)
    np.testing.assert_allclose(got_reward, reward, atol=1e-5)
    np.testing.assert_allclose(after.velocity, state[:, 1], atol=1e-5)
    np.testing.assert_allclose(np.cos(after.angle - state[:, 0]), 1, atol=1e-9)
    assert not (terminated.any() or truncated.any() or got_terminated or got_truncated)


def test_cartpole_equals_gymnasium_from_shared_states():
    # Some within, some about to leave the bounds of position and angle.
    states = RNG.uniform(-1, 1, (SAMPLES, 4)) * [2.5, 3.0, 0.23, 3.0]
    actions = RNG.integers(0, 2, SAMPLES)
    observation, reward, terminated, _, state = gymnasium_rows("CartPole-v1", states, actions)
    ours = CartPoleState(*jnp.asarray(states.T, jnp.float32))
    step = jax.jit(jax.vmap(make("cartpole").step, out_axes=(0, 0, None, 0, None, 0)))
    after, got, got_reward, got_terminated, got_truncated, _ = step(ours, actions)
    np.testing.assert_allclose(got, observation, atol=1e-5)
    np.testing.assert_allclose(
        jnp.stack([after.position, after.velocity, after.angle, after.angular_velocity], 1), state, atol=1e-5
    )
    np.testing.assert_array_equal(got_terminated, terminated)
    assert 50 < terminated.sum() < 350
    assert set(reward.tolist()) == {1.0} == {float(got_reward)}
    assert not got_truncated


def test_a_whole_cartpole_episode_equals_gymnasium_from_its_start_to_its_end():
    peer, env = gymnasium.make("CartPole-v1"), make("cartpole")
    observation, _ = peer.reset(seed=3)
    state = CartPoleState(*jnp.asarray(peer.unwrapped.state, jnp.float32))
    step = jax.jit(env.step)
    for t in range(500):
        action = int(observation[2] > 0) if t % 3 else 1
        observation, reward, terminated, _, _ = peer.step(action)
        state, got, got_reward, got_terminated, _, _ = step(state, action)
        np.testing.assert_allclose(got, observation, atol=1e-4)
        assert (reward, terminated) == (float(got_reward), bool(got_terminated))
        if terminated:
            break
    assert terminated and t > 10


@pytest.mark.parametrize("action", [1, 1.0, np.int64(1), np.float32(1), jnp.asarray(1), True])
def test_cartpole_takes_one_in_any_number_type_as_a_push_to_the_right(action):
    env = make("cartpole")
    state = CartPoleState(*jnp.zeros(4))
    assert float(env.step(state, action)[1][1]) > 0
    assert float(env.step(state, 0)[1][1]) < 0


@pytest.mark.parametrize("action", [1, 1.0, np.float64(1), np.ones(1), jnp.ones((1,)), jnp.ones(())])
def test_pendulum_takes_a_torque_as_a_number_or_an_array_of_one(action):
    state = PendulumState(jnp.zeros(()), jnp.zeros(()), jnp.zeros(()))
    # ω' = 3 / (m l²) u Δt = 3 * 1 * 0.05
    assert float(make("pendulum").step(state, action)[1][2]) == pytest.approx(0.15, abs=1e-6)


@pytest.mark.parametrize(("name", "env_id"), [("pendulum", "Pendulum-v1"), ("cartpole", "CartPole-v1")])
def test_spaces_and_time_limits_are_gymnasiums(name, env_id):
    env, spec = make(name), gymnasium.spec(env_id)
    peer = gymnasium.make(env_id)
    assert env.observation_space(None).to_gymnasium() == peer.observation_space
    assert env.action_space(None).to_gymnasium() == peer.action_space
    assert env.max_steps == spec.max_episode_steps


@pytest.mark.parametrize(("name", "env_id"), [("pendulum", "Pendulum-v1"), ("cartpole", "CartPole-v1")])
def test_initial_states_fill_the_range_of_gymnasiums(name, env_id):
    env = make(name)
    states, _, _ = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 4000))
    ours = np.stack(jax.tree.leaves(states), axis=1)[:, : 2 if name == "pendulum" else 4]
    bounds = [math.pi, 1.0] if name == "pendulum" else [0.05] * 4
    peer = gymnasium.make(env_id).unwrapped
    theirs = []
    for seed in range(300):
        peer.reset(seed=seed)
        theirs.append(peer.state)
    assert (np.abs(theirs) <= bounds).all() and (np.abs(ours) <= bounds).all()
    # Mean 0 and deviation b/√3 of a uniform draw, within five standard errors.
    np.testing.assert_allclose(ours.mean(0) / bounds, 0, atol=5 / math.sqrt(3 * 4000))
    np.testing.assert_allclose(ours.std(0) / bounds, 1 / math.sqrt(3), atol=0.02)


def test_options_change_the_physics():
    state = PendulumState(jnp.asarray(math.pi / 2), jnp.zeros(()), jnp.zeros(()))
    # ω' = 3 g / (2 l) sin θ Δt = 1.5 * 4 / 2 * 0.05
    env = make("pendulum", gravity=4.0, length=2.0)
    assert float(env.step(state, 0.0)[1][2]) == pytest.approx(0.15, abs=1e-6)
    assert make("cartpole", max_steps=7).max_steps == 7


@pytest.mark.parametrize(("name", "shape"), [("pendulum", (304, 304, 3)), ("cartpole", (224, 480, 3))])
def test_a_picture_shows_the_state(name, shape):
    env = make(name)
    state, _, _ = env.reset(jax.random.key(0))
    first = render(env, state)
    action = 1 if name == "cartpole" else 2.0
    for _ in range(8):
        state = env.step(state, action)[0]
    second = render(env, state)
    assert first.shape == second.shape == shape and first.dtype == np.uint8
    assert (first != second).any(axis=-1).mean() > 0.005


def test_a_wrapped_environment_is_drawn_like_the_one_inside():
    env = make("pendulum")
    wrapped = ObservationHistory(AutoReset(env), 2)
    state, _, _ = wrapped.reset(jax.random.key(0))
    assert can_render(wrapped)
    np.testing.assert_array_equal(render(wrapped, state), render(env, state.inner.inner))
