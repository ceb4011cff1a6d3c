"""Failure labels: the hand-worked tables and a search window by window."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dressage.equations.cost_shaping import failure_labels
from tests.strategies import flags, numbers

labels_of = jax.jit(failure_labels)


def labels_by_search(costs, ends, horizon):
    """Look into each window; None where it is cut by the rollout with nothing seen."""
    return [_label(costs[start:], np.flatnonzero(ends[start:]), horizon) for start in range(len(costs))]


def _label(costs, ends, horizon):
    window = min(horizon, ends[0] + 1) if len(ends) else horizon
    if (costs[:window] > 0).any():
        return True
    return False if window <= len(costs) else None


@pytest.mark.parametrize(
    ("costs", "ends", "horizon", "expected"),
    [
        ([0, 0, 1, 0, 0, 0, 1, 0], [0, 0, 0, 1, 0, 0, 0, 0], 3, "1110111?"),
        ([0, 0, 0, 1, 0], [0, 1, 0, 0, 1], 4, "00110"),
        ([0, 0, 0, 0], [0, 0, 0, 0], 2, "000?"),
        ([1, 0, 1], [0, 0, 1], 1, "101"),
        ([0, 1], [0, 1], 0, "00"),
        ([0, -1, 0.5], [0, 0, 0], 2, "011"),
    ],
)
def test_the_tables_by_hand(costs, ends, horizon, expected):
    labels, known = labels_of(np.array(costs), np.array(ends), horizon)
    written = "".join(str(int(label)) if sure else "?" for label, sure in zip(labels, known, strict=True))
    assert written == expected
    assert labels.dtype == jnp.float32
    assert not np.asarray(labels)[~np.asarray(known)].any()


@given(numbers((9, 2), -1, 1), flags((9, 2)), flags((9, 2)), st.integers(0, 12))
def test_labels_equal_a_search_of_every_window(costs, quiet, ends, horizon):
    costs = np.where(quiet, 0, costs)
    labels, known = labels_of(costs, ends, horizon)
    for column in range(2):
        expected = labels_by_search(costs[:, column], ends[:, column], horizon)
        found = [bool(a) if b else None for a, b in zip(labels[:, column], known[:, column], strict=True)]
        assert found == expected


def test_a_horizon_beyond_any_rollout_does_not_wrap():
    labels, known = labels_of(np.zeros(3), np.array([0, 1, 0]), 2**31 - 2)
    np.testing.assert_array_equal(labels, [0, 0, 0])
    np.testing.assert_array_equal(known, [True, True, False])


def test_labels_work_under_vmap_and_their_gradient_is_zero():
    costs, ends = np.array([[0, 1.0], [0, 0], [1, 0]]), np.zeros((3, 2))
    together, _ = labels_of(costs, ends, 2)
    apart, _ = jax.vmap(failure_labels, in_axes=(1, 1, None), out_axes=1)(costs, ends, 2)
    np.testing.assert_array_equal(together, apart)
    slope = jax.grad(lambda costs: failure_labels(costs, ends, 2)[0].sum())(jnp.asarray(costs))
    np.testing.assert_array_equal(slope, np.zeros((3, 2)))


def test_arrays_of_unequal_shape_are_refused():
    with pytest.raises(ValueError, match=re.escape("costs (3,), episode_ends (2,)")):
        failure_labels(np.zeros(3), np.zeros(2), 2)
