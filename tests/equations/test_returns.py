"""Advantage estimation and normalisation against hand-worked tables and a forward-summing oracle."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dressage.equations.returns import check_episode_masks, compute_gae, normalize_advantages
from tests.oracles.plain_returns import gae_by_definition
from tests.strategies import numbers, rollouts

# Eight rows with a termination (row 2), a truncation (row 4) and the rollout's own end (row 7).
REWARDS = np.array([1, 0, 2, -1, 0.5, 1, 3, -2])
TERMINATED = np.array([0, 0, 1, 0, 0, 0, 0, 0])
TRUNCATED = np.array([0, 0, 0, 0, 1, 0, 0, 0])
VALUES = np.array([0.5, 1.0, -0.3, 2.0, 1.5, 0.2, 0.7, 1.1])
NEXT_VALUES = np.array([1.0, -0.3, 9.0, 1.5, 4.0, 0.7, 1.1, 0.9])
ENDS = TERMINATED | TRUNCATED
TABLE = (REWARDS, TERMINATED, ENDS, VALUES, NEXT_VALUES, 0.9, 0.8)
ADVANTAGES = np.array([1.67792, 0.386, 2.3, 0.222, 2.6, 2.611664, 1.6412, -2.29])
RETURNS = np.array([2.17792, 1.386, 2.0, 2.222, 4.1, 2.811664, 2.3412, -1.19])

gae = jax.jit(compute_gae)
normalize = jax.jit(normalize_advantages)


def test_termination_truncation_and_rollout_end_give_the_hand_worked_table():
    advantages, returns = gae(*TABLE)
    np.testing.assert_allclose(advantages, ADVANTAGES, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(returns, RETURNS, rtol=1e-4, atol=1e-5)


def test_the_oracle_gives_the_hand_worked_table():
    advantages, returns = gae_by_definition(*TABLE)
    np.testing.assert_allclose(advantages, ADVANTAGES, atol=1e-6)
    np.testing.assert_allclose(returns, RETURNS, atol=1e-6)


@pytest.mark.parametrize(
    ("fault", "arguments", "rows", "wrong"),
    [
        ("truncation as death", {"bootstrap_dones": ENDS}, [3, 4], [-2.37, -1.0]),
        ("truncation ignored", {"episode_ends": TERMINATED}, [3, 4], [1.57589, 4.48040]),
        (
            "reset observation",
            {"next_values": np.where(TRUNCATED, 0.2, NEXT_VALUES)},
            [3, 4],
            [-2.2404, -0.82],
        ),
        ("own value", {"next_values": np.where(TRUNCATED, 1.5, NEXT_VALUES)}, [3, 4], [-1.398, 0.35]),
    ],
)
def test_common_faults_in_the_inputs_show_as_the_numbers_known_for_them(fault, arguments, rows, wrong):
    names = ("rewards", "bootstrap_dones", "episode_ends", "values", "next_values", "gamma", "gae_lambda")
    advantages, _ = gae(**(dict(zip(names, TABLE, strict=True)) | arguments))
    np.testing.assert_allclose(np.asarray(advantages)[rows], wrong, rtol=1e-4, err_msg=fault)


@pytest.mark.parametrize("trailing", [(), (3,), (3, 2)])
def test_extra_axes_repeat_the_column(trailing):
    spread = [np.broadcast_to(a.reshape(-1, *([1] * len(trailing))), (8, *trailing)) for a in TABLE[:5]]
    advantages, returns = gae(*spread, 0.9, 0.8)
    assert advantages.shape == returns.shape == (8, *trailing)
    column = ADVANTAGES.reshape(-1, *([1] * len(trailing)))
    np.testing.assert_allclose(advantages, np.broadcast_to(column, advantages.shape), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", [bool, np.int8, np.int32, np.float32])
def test_masks_of_any_number_type_are_equal(kind):
    advantages, _ = gae(REWARDS, TERMINATED.astype(kind), ENDS.astype(kind), *TABLE[3:])
    np.testing.assert_array_equal(advantages, gae(*TABLE)[0])


@pytest.mark.parametrize("useless", [2.0, 1e30, np.nan, np.inf])
def test_a_terminated_and_truncated_row_ignores_its_next_value(useless):
    ones, last = np.ones(3), np.array([0, 0, 1])
    advantages, returns = gae(ones, last, last, 2 * ones, np.array([2, 2, useless]), 0.5, 1.0)
    np.testing.assert_allclose(advantages, [-0.25, -0.5, -1.0])
    np.testing.assert_allclose(returns, [1.75, 1.5, 1.0])


def test_nan_in_the_next_episode_does_not_reach_the_one_before():
    ends = np.array([0, 1, 0])
    advantages, _ = gae(np.array([1, 1, np.nan]), 0 * ends, ends, *np.ones((2, 3)), 0.9, 0.9)
    np.testing.assert_array_equal(np.isnan(advantages), [False, False, True])


def test_the_hand_worked_final_observation_of_a_truncated_step_is_bootstrapped():
    one = np.ones(1)
    advantages, _ = gae(one, 0 * one, one, 5 * one, 6 * one, 0.9, 0.95)
    np.testing.assert_allclose(advantages, [1.4], rtol=1e-6)


def test_rows_of_a_reset_leave_the_others_as_the_table_says():
    """Row 2 is a reset whose action was ignored; its own number is worthless, its neighbours' are not."""
    terminated = np.array([0, 1, 0, 0, 0])
    values, following = np.array([1.0, 0.5, 7.0, 0.4, 0.3]), np.array([0.5, 7.0, 0.4, 0.3, 0.6])
    advantages, _ = gae(np.array([1, 2, 0, 1, 1]), terminated, terminated, values, following, 0.99, 0.95)
    np.testing.assert_allclose(
        np.asarray(advantages)[[0, 1, 3, 4]], [1.90575, 1.5, 2.114007, 1.294], rtol=1e-5
    )
    np.testing.assert_allclose(np.asarray(advantages)[2], -4.61578, rtol=1e-5)


@given(rollouts())
def test_the_recursion_equals_the_sum_over_each_episode(rollout):
    advantages, returns = gae(**rollout)
    expected, expected_returns = gae_by_definition(**rollout)
    np.testing.assert_allclose(advantages, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(returns, expected_returns, rtol=1e-4, atol=1e-4)


@given(rollouts(shapes=((7,),)), st.integers(1, 6))
def test_episodes_computed_alone_and_concatenated_equal_the_batch(rollout, cut):
    rollout["episode_ends"][cut - 1] = True
    arrays = {name: value for name, value in rollout.items() if np.ndim(value)}
    scalars = {name: value for name, value in rollout.items() if not np.ndim(value)}
    pieces = [
        gae(**{name: array[part] for name, array in arrays.items()}, **scalars)[0]
        for part in (slice(None, cut), slice(cut, None))
    ]
    np.testing.assert_allclose(np.concatenate(pieces), gae(**rollout)[0], rtol=1e-6, atol=1e-6)


def test_vmap_over_copies_equals_the_extra_axis():
    stacked = [np.stack([a, a[::-1]], axis=1) for a in (REWARDS, 0 * ENDS, ENDS, VALUES, NEXT_VALUES)]
    together, _ = gae(*stacked, 0.9, 0.8)
    apart, _ = jax.vmap(lambda *arrays: compute_gae(*arrays, 0.9, 0.8), in_axes=1, out_axes=1)(*stacked)
    np.testing.assert_allclose(together, apart, rtol=1e-6)


def test_the_gradient_in_the_rewards_is_the_discounted_weight_and_stops_at_episode_ends():
    def first(rewards):
        return compute_gae(rewards, *TABLE[1:])[0][0]

    gradient = jax.jit(jax.grad(first))(jnp.asarray(REWARDS, jnp.float32))
    np.testing.assert_allclose(gradient, [1, 0.72, 0.72**2, 0, 0, 0, 0, 0], rtol=1e-6)


def test_the_gradient_is_finite_behind_a_masked_nan():
    def total(values, next_values):
        return jnp.sum(compute_gae(np.ones(2), np.ones(2), np.ones(2), values, next_values, 0.9, 0.9)[0])

    gradients = jax.grad(total, (0, 1))(jnp.ones(2), jnp.array([jnp.nan, jnp.inf]))
    np.testing.assert_array_equal(gradients, [[-1, -1], [0, 0]])


def test_arrays_of_unequal_shape_are_refused_with_both_shapes():
    with pytest.raises(ValueError, match=re.escape("rewards (8,), values (7,)")):
        compute_gae(REWARDS, TERMINATED, ENDS, VALUES[:7], NEXT_VALUES, 0.9, 0.8)


def test_a_reward_without_a_time_axis_is_refused():
    with pytest.raises(ValueError, match="leading time axis"):
        compute_gae(1.0, 0, 0, 1.0, 1.0, 0.9, 0.8)


def test_a_termination_that_ends_no_episode_is_refused_with_its_index():
    check_episode_masks(TERMINATED, ENDS)
    with pytest.raises(ValueError, match=re.escape("bootstrap_dones is set at index (2,)")):
        check_episode_masks(TERMINATED, TRUNCATED)


@pytest.mark.parametrize(
    ("advantages", "normalized"),
    [
        (np.array([1.0, 2.0, 3.0, 4.0]), [-1.3416408, -0.4472136, 0.4472136, 1.3416408]),
        (np.array([1, 2, 3, 4]), [-1.3416408, -0.4472136, 0.4472136, 1.3416408]),
        (np.array([3.7]), [0]),
        (np.array([]), []),
    ],
)
def test_the_population_deviation_is_used(advantages, normalized):
    np.testing.assert_allclose(normalize_advantages(advantages), normalized, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("number", "value"), [(128, 1000.1), (7, 1000.1), (10, -37.7), (7, 0.1), (1, 3.7)])
def test_rounding_noise_of_constant_advantages_gives_zeros(number, value):
    np.testing.assert_array_equal(normalize(np.full(number, value, np.float32)), np.zeros(number))


def test_a_small_but_real_spread_is_kept():
    tiny = np.array([1.0, 2.0, 3.0, 4.0], np.float32) * 1e-4
    np.testing.assert_allclose(normalize(tiny)[0], -1.3416408, rtol=1e-4)


@given(numbers((4, 6), -1000, 1000))
def test_the_result_has_zero_mean_and_unit_deviation_or_is_zero(advantages):
    normalized = np.asarray(normalize(advantages), np.float64)
    assert abs(normalized.mean()) < 1e-4
    assert abs(normalized.std() - 1) < 1e-3 or not normalized.any()


@given(numbers((4, 6)))
def test_invalid_entries_do_not_change_the_others(advantages):
    valid = np.arange(24).reshape(4, 6) % 3 > 0
    spoilt = np.where(valid, advantages, np.nan)
    normalized = np.asarray(normalize(spoilt, valid))
    np.testing.assert_allclose(
        normalized[valid], normalize_advantages(advantages[valid]), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_array_equal(normalized[~valid], 0)


def test_no_valid_entry_gives_zeros():
    np.testing.assert_array_equal(normalize(np.ones(3), np.zeros(3)), np.zeros(3))


def test_the_gradient_of_normalisation_is_finite_for_constant_and_for_spread_advantages():
    jacobian = jax.jit(jax.jacobian(normalize_advantages))
    for advantages in ([5.0, 5.0, 5.0], [0.0, 0.0, 0.0], [1.0, 2.0, 4.0]):
        assert np.isfinite(jacobian(jnp.asarray(advantages))).all()
    assert jax.grad(lambda a: normalize_advantages(a)[0])(jnp.array([3.7])) == 0


def test_normalisation_works_under_vmap():
    rows = np.array([[1.0, 2.0, 3.0, 4.0], [5.0, 5.0, 5.0, 5.0]])
    expected = [[-1.3416408, -0.4472136, 0.4472136, 1.3416408], [0, 0, 0, 0]]
    np.testing.assert_allclose(jax.vmap(normalize_advantages)(rows), expected, rtol=1e-5)
