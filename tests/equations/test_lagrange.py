"""Lagrange multipliers: the hand-worked sequences, projection, refusals, PID control."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dressage.equations.lagrange import PIDMultiplier, penalized_advantages, update_multiplier
from dressage.equations.returns import normalize_advantages
from dressage.errors import ConfigError, NonFiniteError

update = jax.jit(update_multiplier)
control = jax.jit(PIDMultiplier.update)


@pytest.mark.parametrize(
    ("multiplier", "rate", "limit", "maximum", "costs", "expected"),
    [
        (0.5, 0.1, 25, np.inf, [30, None, 20, 100, 10, 10], [1.0, 1.0, 0.5, 8.0, 6.5, 5.0]),
        (0.0, 0.05, 10, np.inf, [0, 0, 30, 12], [0, 0, 1.0, 1.1]),
        (1.0, 1.0, 5, 20, [50, 50, 5], [20, 20, 20]),
    ],
)
def test_sequences_by_hand(multiplier, rate, limit, maximum, costs, expected):
    seen = []
    for cost in costs:
        fresh = cost is not None
        multiplier = update(multiplier, cost if fresh else np.nan, limit, rate, 0.0, maximum, fresh)
        seen.append(float(multiplier))
    np.testing.assert_allclose(seen, expected, rtol=1e-5, atol=1e-6)


def test_one_agent_without_an_episode_does_not_stop_another():
    costs, fresh = np.array([30.0, np.nan, 20.0]), np.array([True, False, True])
    np.testing.assert_allclose(update(np.full(3, 1.0), costs, 25.0, 0.1, fresh=fresh), [1.5, 1.0, 0.5])
    limits = np.array([25.0, 1.0, 5.0])
    np.testing.assert_allclose(update(np.full(3, 1.0), costs, limits, 0.1, fresh=fresh), [1.5, 1.0, 2.5])


@given(st.floats(0, 5), st.floats(0, 1), st.floats(-50, 50), st.floats(0, 2), st.floats(2, 8))
def test_the_multiplier_stays_within_its_bounds_and_moves_towards_the_violation(
    start, rate, excess, low, high
):
    moved = float(update(start, 25 + excess, 25.0, rate, low, high))
    assert low - 1e-6 <= moved <= high + 1e-6
    if low <= start <= high:
        assert (moved - start) * excess >= -1e-4


def test_a_traced_nan_cost_keeps_the_multiplier_and_a_concrete_one_is_an_error():
    assert update(0.7, np.nan, 25.0, 0.1) == pytest.approx(0.7)
    with pytest.raises(NonFiniteError, match="episodic cost of a multiplier's update is NaN"):
        update_multiplier(0.7, np.nan, 25.0, 0.1)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"learning_rate": -0.1}, "the rate of a multiplier must be >= 0, got -0.1"),
        ({"learning_rate": 0.1, "minimum": -1.0}, "the least multiplier must be >= 0, got -1.0"),
        ({"learning_rate": 0.1, "minimum": 2.0, "maximum": 1.0}, "must be >= the least (2.0), got 1.0"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings, text):
    with pytest.raises(ConfigError, match=re.escape(text)):
        update_multiplier(0.5, 30.0, 25.0, **settings)


def test_updates_work_under_vmap_and_grad():
    moved = jax.vmap(update_multiplier, in_axes=(0, 0, None, None))(
        np.ones(2), np.array([30.0, 20.0]), 25.0, 0.1
    )
    np.testing.assert_allclose(moved, [1.5, 0.5])
    assert jax.grad(update_multiplier, 1)(1.0, 30.0, 25.0, 0.1) == pytest.approx(0.1)
    # Where nothing is fresh, a NaN cost reaches no gradient.
    assert jax.grad(lambda m: update_multiplier(m, jnp.nan, 25.0, 0.1, fresh=False))(1.0) == 1


def test_pid_terms_by_hand():
    """Limit 10, gains 0.1, 0.01, 0.05; costs 30, 40, 0."""
    state = PIDMultiplier.start(0.5)
    # The first cost has nothing to grow from: 0.1 * 20 + (0.5 + 0.01 * 20).
    expected = [2.7, 3 + 1.0 + 0.5, 0.0]
    integrals = [0.7, 1.0, 0.9]
    for cost, multiplier, integral in zip([30.0, 40.0, 0.0], expected, integrals, strict=True):
        state = control(state, cost, 10.0, 0.1, 0.01, 0.05)
        assert state.multiplier == pytest.approx(multiplier, rel=1e-5, abs=1e-6)
        assert state.integral == pytest.approx(integral, rel=1e-5)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=6))
def test_integral_control_alone_is_the_projected_gradient(costs):
    state, multiplier = PIDMultiplier.start(0.5), jnp.asarray(0.5)
    for cost in costs:
        state = control(state, cost, 25.0, 0.0, 0.1, 0.0, 0.0, 8.0)
        multiplier = update(multiplier, cost, 25.0, 0.1, 0.0, 8.0)
    assert state.multiplier == pytest.approx(float(multiplier), rel=1e-5, abs=1e-5)


def test_the_integral_does_not_wind_up():
    state = PIDMultiplier.start()
    for _ in range(50):
        state = control(state, 100.0, 10.0, 0.0, 0.1, 0.0, 0.0, 5.0)
    assert state.multiplier == 5
    state = control(state, 0.0, 10.0, 0.0, 0.1, 0.0, 0.0, 5.0)
    assert state.multiplier == pytest.approx(4.0)


def test_pid_leaves_an_agent_without_an_episode_as_it_was():
    state = control(PIDMultiplier.start(np.array([1.0, 2.0])), np.array([30.0, 30.0]), 25.0, 0.1, 0.1, 0.1)
    fresh = np.array([True, False])
    moved = control(state, np.array([20.0, np.nan]), 25.0, 0.1, 0.1, 0.1, fresh=fresh)
    for before, after in zip(jax.tree.leaves(state), jax.tree.leaves(moved), strict=True):
        assert before[1] == after[1]
    assert moved.multiplier[0] != state.multiplier[0]


def test_a_negative_gain_is_refused():
    with pytest.raises(ConfigError, match=r"the rate of a multiplier must be >= 0, got -0.5"):
        PIDMultiplier.start().update(30.0, 25.0, 0.1, 0.1, -0.5)


def test_pid_works_under_vmap_and_grad():
    states = jax.vmap(PIDMultiplier.start)(np.array([0.0, 1.0]))
    moved = jax.vmap(lambda s, cost: s.update(cost, 25.0, 0.0, 0.1, 0.0))(states, np.array([30.0, 20.0]))
    np.testing.assert_allclose(moved.multiplier, [0.5, 0.5])
    slope = jax.grad(lambda cost: PIDMultiplier.start(1.0).update(cost, 25.0, 0.3, 0.1, 0.0).multiplier)
    assert slope(30.0) == pytest.approx(0.4)


REWARD_ADVANTAGES, COST_ADVANTAGES = [1.0, 2.0, 3.0, 6.0], [0.0, 4.0, 0.0, 0.0]


def test_advantages_are_mixed_as_by_hand():
    """Centred -2 -1 0 3 (deviation sqrt(3.5)) and -1 3 -1 -1; at 1/2 that is (-1.5 -2.5 0.5 3.5)/2.8062."""
    mixed = penalized_advantages(REWARD_ADVANTAGES, COST_ADVANTAGES, 0.5)
    np.testing.assert_allclose(mixed, [-0.5345225, -0.8908708, 0.1781742, 1.2472191], rtol=1e-6)


def test_without_a_multiplier_mixing_is_normalisation_to_the_last_bit():
    rng = np.random.default_rng(0)
    rewards, costs = rng.normal(size=(2, 40, 3)).astype(np.float32) * [[[7.0]], [[300.0]]]
    valid = rng.random((40, 3)) < 0.8
    mixed = penalized_advantages(rewards, costs, 0.0, valid)
    np.testing.assert_array_equal(mixed, normalize_advantages(rewards, valid))


def test_at_the_dual_multiplier_nothing_is_left_to_gain():
    """Where cost is twice the reward the dual is 1/2; two deviations would move the fixed point to 1."""
    rewards = np.array([0.0, 1.0, 0.0, 2.0])
    np.testing.assert_allclose(penalized_advantages(rewards, 2 * rewards, 0.5), np.zeros(4), atol=1e-7)
    apart = normalize_advantages(rewards) - 0.5 * normalize_advantages(2 * rewards)
    assert np.abs(apart).max() > 0.5


def test_flat_rewards_leave_the_cost_to_follow():
    mixed = penalized_advantages(np.full(4, 5.0), COST_ADVANTAGES, 1.0)
    np.testing.assert_allclose(mixed, -np.asarray(normalize_advantages(COST_ADVANTAGES)) / 2, rtol=1e-6)
    np.testing.assert_array_equal(penalized_advantages(np.full(4, 5.0), np.ones(4), 1.0), np.zeros(4))


def test_rows_that_are_no_samples_mix_into_no_other():
    valid = np.array([True, True, False, True, True])
    rewards, costs = (np.insert(values, 2, np.nan) for values in (REWARD_ADVANTAGES, COST_ADVANTAGES))
    mixed = np.asarray(penalized_advantages(rewards, costs, 0.5, valid))
    np.testing.assert_allclose(
        mixed[valid], penalized_advantages(REWARD_ADVANTAGES, COST_ADVANTAGES, 0.5), rtol=1e-6
    )
    assert mixed[2] == 0
