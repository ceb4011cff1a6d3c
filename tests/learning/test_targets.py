"""Targets of a rollout: two kinds of end, rows that are no samples, rewards scaled by their returns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.equations.statistics import RunningMoments
from dressage.learning.targets import REWARD_CLIP, advantage_targets, scale_rewards
from tests.oracles.plain_returns import gae_by_definition
from tests.oracles.plain_rollouts import RewardScaler, normalized

targets = jax.jit(advantage_targets)
scaled = jax.jit(scale_rewards)


def column(values, dtype=np.float32):
    return np.asarray(values, dtype)[:, None]


# Case G01: a termination at row 2, a time limit at row 4, the rollout's own end at row 7.
G01 = {
    "rewards": column([1, 0, 2, -1, 0.5, 1, 3, -2]),
    "terminated": column([0, 0, 1, 0, 0, 0, 0, 0], bool),
    "episode_ends": column([0, 0, 1, 0, 1, 0, 0, 0], bool),
    "values": column([0.5, 1.0, -0.3, 2.0, 1.5, 0.2, 0.7, 1.1]),
    "next_values": column([1.0, -0.3, 9.0, 1.5, 4.0, 0.7, 1.1, 0.9]),
}
G01_ADVANTAGES = column([1.67792, 0.386, 2.3, 0.222, 2.6, 2.611664, 1.6412, -2.29], float)
G01_RETURNS = column([2.17792, 1.386, 2.0, 2.222, 4.1, 2.811664, 2.3412, -1.19], float)


def test_a_termination_a_time_limit_and_the_rollouts_end_each_bootstrap_as_they_should():
    result = targets(**G01, valid=None, gamma=0.9, gae_lambda=0.8)
    np.testing.assert_allclose(result.returns, G01_RETURNS, rtol=1e-5)
    np.testing.assert_allclose(result.advantages, normalized(G01_ADVANTAGES), rtol=1e-4, atol=1e-5)


def test_values_behind_a_termination_do_not_matter_even_as_nan():
    row = {
        "rewards": column([1, 1, 1]),
        "terminated": column([0, 0, 1], bool),
        "episode_ends": column([0, 0, 1], bool),
        "values": column([2, 2, 2]),
    }
    for behind in (2.0, 1e30, np.nan):
        result = targets(**row, next_values=column([2, 2, behind]), valid=None, gamma=0.5, gae_lambda=1.0)
        np.testing.assert_allclose(result.returns, column([1.75, 1.5, 1.0]), rtol=1e-6)
        np.testing.assert_allclose(result.advantages, normalized(column([-0.25, -0.5, -1.0])), rtol=1e-5)


# Case G03: row 2 is the reset of a NEXT_STEP autoreset; its action was ignored.
G03_VALID = column([1, 1, 0, 1, 1], bool)
G03_ADVANTAGES = np.array([1.90575, 1.5, 2.114007, 1.294])
G03_VALUES = np.array([1.0, 0.5, 0.4, 0.3])


@pytest.mark.parametrize("reset_value", [7.0, 1e9, np.nan])
def test_a_reset_row_reaches_neither_its_neighbours_nor_the_mean(reset_value):
    result = targets(
        rewards=column([1, 2, 0, 1, 1]),
        terminated=column([0, 1, 0, 0, 0], bool),
        episode_ends=column([0, 1, 0, 0, 0], bool),
        values=column([1.0, 0.5, reset_value, 0.4, 0.3]),
        next_values=column([0.5, reset_value, 0.4, 0.3, 0.6]),
        valid=G03_VALID,
        gamma=0.99,
        gae_lambda=0.95,
    )
    np.testing.assert_allclose(result.returns[G03_VALID], G03_ADVANTAGES + G03_VALUES, rtol=1e-5)
    np.testing.assert_allclose(result.advantages[G03_VALID], normalized(G03_ADVANTAGES), rtol=1e-4)


@pytest.mark.parametrize("garbage", [50.0, np.nan])
def test_a_row_that_is_no_sample_does_not_reach_a_row_before_it_that_ended_nothing(garbage):
    # An agent that leaves without a flag: its last sample bootstraps from its own next value and stops there.
    result = targets(
        rewards=column([1, 10 * garbage, 2]),
        terminated=column([0, 0, 0], bool),
        episode_ends=column([0, 0, 0], bool),
        values=column([0.5, garbage, 1.0]),
        next_values=column([2.0, garbage, 3.0]),
        valid=column([1, 0, 1], bool),
        gamma=0.5,
        gae_lambda=1.0,
    )
    # 1 + 0.5 * 2 = 2 and 2 + 0.5 * 3 = 3.5.
    np.testing.assert_allclose(np.asarray(result.returns)[[0, 2], 0], [2.0, 3.5], rtol=1e-6)


def test_a_truncated_step_bootstraps_from_the_final_observation():
    # Case G04: V(o) = 2 o; acted on 2.5, stopped on 3. Delta is 1 + 0.9 * 6 - 5 = 1.4.
    result = targets(
        rewards=column([1.0]),
        terminated=column([0], bool),
        episode_ends=column([1], bool),
        values=column([2 * 2.5]),
        next_values=column([2 * 3.0]),
        valid=None,
        gamma=0.9,
        gae_lambda=0.95,
    )
    assert result.returns[0, 0] == pytest.approx(5 + 1.4, rel=1e-6)
    assert result.advantages[0, 0] == 0, "one sample has nothing to be compared with"


@pytest.mark.parametrize("copies", [1, 4])
def test_random_rollouts_equal_the_sum_by_definition(copies):
    generator = np.random.default_rng(copies)
    shape = (11, copies)
    terminated = generator.random(shape) < 0.15
    ends = terminated | (generator.random(shape) < 0.15)
    rewards, values, following = generator.normal(size=(3, *shape))
    result = targets(rewards, terminated, ends, values, following, None, 0.97, 0.9)
    advantages, returns = gae_by_definition(rewards, terminated, ends, values, following, 0.97, 0.9)
    np.testing.assert_allclose(result.returns, returns, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(result.advantages, normalized(advantages), rtol=1e-4, atol=1e-5)


def run_scaler(rollouts, gamma):
    copies = rollouts[0][0].shape[1]
    moments, running = RunningMoments.zeros(()), jnp.zeros(copies)
    rows = []
    for rewards, ends, valid in rollouts:
        result, moments, running = scaled(rewards, ends, valid, moments, running, gamma)
        rows.append(np.asarray(result))
    return rows, moments, running


def random_rollouts(count, with_invalid_rows):
    generator = np.random.default_rng(7)
    for _ in range(count):
        rewards = generator.normal(2.0, 3.0, (9, 3)).astype(np.float32)
        ends = generator.random((9, 3)) < 0.2
        # A NEXT_STEP reset row stands behind an end and brings the reward 0.
        valid = np.concatenate([np.ones((1, 3), bool), ~ends[:-1]])
        yield (
            (np.where(valid, rewards, 0), ends & valid, valid) if with_invalid_rows else (rewards, ends, None)
        )


@pytest.mark.parametrize("with_invalid_rows", [False, True])
def test_rewards_are_divided_by_the_deviation_of_all_discounted_returns_so_far(with_invalid_rows):
    rollouts = list(random_rollouts(5, with_invalid_rows))
    rows, moments, running = run_scaler(rollouts, 0.9)
    oracle = RewardScaler(copies=3, gamma=0.9)
    for ours, rollout in zip(rows, rollouts, strict=True):
        np.testing.assert_allclose(ours, oracle.scale(*rollout), rtol=1e-4, atol=1e-5)
    assert moments.count == len(oracle.seen)
    assert moments.mean == pytest.approx(np.mean(oracle.seen), rel=1e-4)
    np.testing.assert_allclose(running, oracle.running, rtol=1e-4, atol=1e-5)


def test_a_reward_that_is_no_sample_stays_out_of_the_running_return():
    rewards = np.array([[1.0], [np.nan], [2.0]], np.float32)
    valid = np.array([[True], [False], [True]])
    ends = np.array([[True], [False], [False]])
    (result,), moments, running = run_scaler([(rewards, ends, valid)], 0.5)
    assert moments.count == 2
    assert moments.mean == pytest.approx(1.5)
    assert running[0] == pytest.approx(2.0)
    # The deviation of 1 and 2 is one half.
    np.testing.assert_allclose(result[valid], [2.0, 4.0], rtol=1e-6)


def test_an_outlier_is_clipped():
    rewards = np.zeros((200, 1), np.float32)
    rewards[100] = -300.0
    (result,), _, _ = run_scaler([(rewards, np.ones((200, 1), bool), None)], 0.9)
    assert result.min() == -REWARD_CLIP


def test_scaling_keeps_the_sign_and_the_ratio_of_rewards():
    rewards = np.array([[1.0], [2.0], [0.0], [-4.0]], np.float32)
    (result,), _, _ = run_scaler([(rewards, np.zeros((4, 1), bool), None)], 0.9)
    np.testing.assert_allclose(result / result[0], rewards, rtol=1e-6)
