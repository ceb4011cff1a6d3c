"""Scaling of actions, and the bounds that are refused."""

import re

import jax
import numpy as np
import pytest
from hypothesis import given

from dressage.equations.action_scaling import check_bounds, scale_action, unscale_action
from dressage.errors import ConfigError
from tests.strategies import numbers

scale = jax.jit(scale_action)
unscale = jax.jit(unscale_action)
FLOAT32_MAX = float(np.finfo(np.float32).max)


@pytest.mark.parametrize(
    ("low", "high", "normalized", "actions"),
    [
        (-2.0, 5.0, [-1, -0.5, 0, 1], [-2, -0.25, 1.5, 5]),
        (0, 10, [-1, 0, 1], [0, 5, 10]),  # an integer box
        (-2.0, 5.0, [-3, 7], [-2, 5]),  # outside [-1, 1]: the bounds
    ],
)
def test_scaling_by_hand(low, high, normalized, actions):
    np.testing.assert_allclose(scale(np.array(normalized), low, high), actions, rtol=1e-6)


def test_each_dimension_has_its_own_bounds():
    low, high = np.array([-2.0, 0.0]), np.array([5.0, 10.0])
    np.testing.assert_allclose(
        scale(np.array([[0.0, 0.0], [1.0, -1.0]]), low, high), [[1.5, 5.0], [5.0, 0.0]]
    )
    np.testing.assert_allclose(unscale(np.array([1.5, 10.0]), low, high), [0, 1], atol=1e-6)


@given(numbers((32, 2), -1, 1))
def test_scaled_actions_lie_inside_the_bounds_and_come_back(normalized):
    low, high = np.array([-0.1, 100.0], np.float32), np.array([0.3, 100.1], np.float32)
    actions = np.asarray(scale(normalized, low, high))
    assert (actions >= low).all()
    assert (actions <= high).all()
    # One unit in the last place of 100 is 1.5e-4 of a half width of 0.05.
    np.testing.assert_allclose(unscale(actions, low, high), normalized, atol=5e-4)


def test_both_ends_are_met_exactly():
    low, high = np.array([-0.1, 1e-8, -3e38], np.float32), np.array([0.3, 3.3, 3e38], np.float32)
    np.testing.assert_array_equal(scale(np.full(3, -1.0), low, high), low)
    np.testing.assert_array_equal(scale(np.full(3, 1.0), low, high), high)


def test_scaling_works_under_vmap_and_grad():
    actions = jax.vmap(scale_action, in_axes=(0, None, None))(np.array([-0.5, 0.5]), -2.0, 5.0)
    np.testing.assert_allclose(actions, [-0.25, 3.25])
    assert jax.grad(scale_action)(0.2, -2.0, 5.0) == pytest.approx(3.5)
    assert jax.grad(unscale_action)(0.2, -2.0, 5.0) == pytest.approx(1 / 3.5)


@pytest.mark.parametrize("bound", [np.inf, FLOAT32_MAX, 3.4e38])
def test_infinite_bounds_are_refused_with_squashing_and_taken_without(bound):
    low, high = np.array([-1.0, 0.0]), np.array([1.0, bound])
    check_bounds(low, high, squash=False)
    with pytest.raises(ConfigError, match=r"action dimension 1 has bounds \[0, .*\]: squashing needs finite"):
        check_bounds(low, high, squash=True)
    with pytest.raises(ConfigError, match="action dimension 0 has bounds"):
        check_bounds(-high[::-1], high, squash=True)


@pytest.mark.parametrize("squash", [True, False])
@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        ([0, 1.5], [1, 1.5], "action dimension 1 has bounds [1.5, 1.5]: the lower bound must be below"),
        ([0, 3], [1, 2], "action dimension 1 has bounds [3, 2]: the lower bound must be below"),
        ([np.nan, 0], [1, 2], "action dimension 0 has bounds [nan, 1]: a bound is NaN"),
        ([0], [1, 2], "action bounds differ in shape: low (1,), high (2,)"),
    ],
)
def test_equal_inverted_and_nan_bounds_are_refused_by_dimension(low, high, text, squash):
    with pytest.raises(ConfigError, match=re.escape(text)):
        check_bounds(np.array(low, float), np.array(high, float), squash)


def test_finite_bounds_are_taken():
    check_bounds(np.full((2, 2), -3.0), np.full((2, 2), 3e38), squash=True)
