"""Lagrange multipliers: the hand-worked sequences, projection, refusals, PID control."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dressage.equations.lagrange import PIDMultiplier, update_multiplier
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
