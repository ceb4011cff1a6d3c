"""Normalisation over all copies: statistics of what was seen, frozen in evaluation, cut at episode ends."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.envs import VectorEnv
from dressage.envs.spaces import Box, Discrete
from dressage.envs.wrappers import NormalizeObservations, NormalizeRewards
from dressage.equations.statistics import RunningMoments
from dressage.errors import ConfigError, UnsupportedSpaceError
from tests.envs.toys import Diary, Line

COPIES, STEPS = 3, 12
ACTIONS = np.zeros((STEPS, COPIES), np.float32)


@partial(jax.jit, static_argnums=0)
def run(vector, key, moments):
    state, first = vector.reset(key, moments) if moments is not None else vector.reset(key)
    state, steps = jax.lax.scan(vector.step, state, ACTIONS)
    return state, first, steps


@pytest.fixture(scope="module")
def plain():
    return run(VectorEnv(Diary(), COPIES), jax.random.key(4), None)


@pytest.fixture(scope="module")
def normalized():
    vector = NormalizeObservations(NormalizeRewards(VectorEnv(Diary(), COPIES), gamma=0.9), clip=2.0)
    return run(vector, jax.random.key(4), None)


def test_every_observation_acted_on_is_counted_once(plain, normalized):
    _, first, steps = plain
    seen = np.concatenate([np.asarray(first)[None], steps.observation]).reshape(-1, 3).astype(np.float64)
    moments = normalized[0].moments
    assert float(moments.count) == len(seen) == (STEPS + 1) * COPIES
    np.testing.assert_allclose(moments.mean, seen.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(moments.var, seen.var(0), rtol=1e-4, atol=1e-6)


def test_observations_and_final_ones_are_normalised_by_the_same_statistics(plain, normalized):
    state, _, steps = normalized
    last = {name: np.asarray(getattr(plain[2], name))[-1] for name in ("observation", "final_observation")}
    for name, value in last.items():
        expected = np.clip((value - state.moments.mean) / np.sqrt(state.moments.var + 1e-8), -2, 2)
        np.testing.assert_allclose(getattr(steps, name)[-1], expected, rtol=1e-4, atol=1e-5)
    assert (np.abs(steps.observation) <= 2).all()


def test_rewards_are_divided_by_the_deviation_of_the_discounted_return_that_ends_with_the_episode(
    plain, normalized
):
    rewards, ended = np.asarray(plain[2].reward, np.float64), np.asarray(plain[2].ended)
    returns, seen, expected = np.zeros(COPIES), [], []
    for reward, end in zip(rewards, ended, strict=True):
        returns = 0.9 * returns + reward
        seen.append(returns)
        variance = np.var(seen)
        expected.append(np.clip(reward / (np.sqrt(variance) if variance > 1e-8 else 1.0), -10, 10))
        returns = np.where(end, 0.0, returns)
    np.testing.assert_allclose(normalized[2].reward, expected, rtol=1e-4)


def test_returns_of_episodes_stay_in_the_environments_own_unit(plain, normalized):
    np.testing.assert_array_equal(normalized[2].episode_return, plain[2].episode_return)
    np.testing.assert_array_equal(normalized[2].ended, plain[2].ended)


def test_frozen_statistics_do_not_change_and_are_used():
    moments = RunningMoments(jnp.asarray(8.0), jnp.full(3, 50.0), jnp.full(3, 400.0))
    vector = NormalizeObservations(VectorEnv(Diary(), COPIES), update=False)
    state, first, steps = run(vector, jax.random.key(4), moments)
    jax.tree.map(np.testing.assert_array_equal, state.moments, moments)
    # Each copy's second place is its step count: 0 at the start.
    np.testing.assert_allclose(first[:, 1], -50 / 20, rtol=1e-6)
    np.testing.assert_allclose(steps.final_observation[0, :, 1], (1 - 50) / 20, rtol=1e-6)


def test_frozen_reward_statistics_do_not_change():
    moments = RunningMoments(jnp.asarray(8.0), jnp.asarray(3.0), jnp.asarray(4.0))
    vector = NormalizeRewards(VectorEnv(Diary(), COPIES), update=False)
    state, _, steps = run(vector, jax.random.key(4), moments)
    jax.tree.map(np.testing.assert_array_equal, state.moments, moments)
    np.testing.assert_allclose(steps.reward[0], 1 / 2, rtol=1e-6)


def test_statistics_go_on_where_they_are_given():
    moments = RunningMoments(jnp.asarray(100.0), jnp.zeros(3), jnp.ones(3))
    state, _, _ = run(NormalizeObservations(VectorEnv(Diary(), COPIES)), jax.random.key(4), moments)
    assert float(state.moments.count) == 100 + (STEPS + 1) * COPIES


@pytest.mark.parametrize("wrapper", [NormalizeObservations, NormalizeRewards])
def test_the_rest_of_the_vector_shows_through(wrapper):
    vector = wrapper(VectorEnv(Diary(), COPIES))
    assert (vector.num_envs, vector.max_steps, vector.action_space) == (COPIES, 5, Box(-1.0, 1.0, ()))
    low = -10.0 if wrapper is NormalizeObservations else -np.inf
    assert vector.observation_space == Box(low, -low, (3,))


@pytest.mark.parametrize("wrapper", [NormalizeObservations, NormalizeRewards])
def test_a_single_environment_is_refused(wrapper):
    with pytest.raises(ConfigError, match="one set of statistics over all copies: wrap Line in VectorEnv"):
        wrapper(Line())


def test_discrete_observations_are_not_normalised():
    numbered = type("Numbered", (Line,), {"observation_space": lambda self, state: Discrete(9)})
    with pytest.raises(UnsupportedSpaceError, match="NormalizeObservations needs a Box to observe"):
        NormalizeObservations(VectorEnv(numbered(), 2))
