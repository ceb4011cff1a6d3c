"""V-trace against its definition as sums, against a table by hand, and against GAE where both must agree."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dressage.equations.returns import compute_gae, vtrace
from tests.oracles.plain_returns import vtrace_by_definition

estimate, gae = jax.jit(vtrace), jax.jit(compute_gae)

number = st.floats(-2.0, 2.0, width=32)
row = st.tuples(
    number, number, number, st.floats(0.125, 3.0, width=32), st.sampled_from(["goes on", "dies", "is cut"])
)
# Two lengths alone, so that two programs are compiled.
rollout = st.sampled_from([1, 5]).flatmap(lambda length: st.lists(row, min_size=length, max_size=length))
share = st.floats(0.0, 1.0, width=32)


def columns_of(rows):
    rewards, values, next_values, ratios, fates = (np.array(column) for column in zip(*rows, strict=True))
    return rewards, fates == "dies", fates != "goes on", values, next_values, ratios


@given(rollout, share, share, st.floats(0.5, 2.0, width=32), st.floats(0.5, 2.0, width=32))
def test_targets_and_advantages_are_the_sums_of_the_paper(rows, gamma, decay, clip_ratio, clip_trace):
    columns = columns_of(rows)
    found = estimate(*columns, gamma, decay, clip_ratio, clip_trace)
    expected = vtrace_by_definition(*columns, gamma, decay, clip_ratio, clip_trace)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_three_steps_by_hand():
    # ratio 0.5, 2, 1 -> 0.5, 1, 1; surprises 0.5 (1 + 0.5 * 2 - 1), 1 + 0.5 * 3 - 2, 1 + 0 - 3
    # surpluses from the end: -2, 0.5 + 0.5 * -2 = -0.5, 0.5 + 0.5 * 0.5 * -0.5 = 0.375
    columns = ([1, 1, 1], [0, 0, 1], [0, 0, 1], [1, 2, 3], [2, 3, 9], [0.5, 2, 1])
    advantages, targets = estimate(*map(np.float32, columns), 0.5)
    np.testing.assert_allclose(targets, [1.375, 1.5, 1.0])
    np.testing.assert_allclose(advantages, [0.5 * (1 + 0.75 - 1), 1 + 0.5 - 2, 1 - 3])


@given(rollout, share, share)
def test_at_ratio_1_the_targets_are_those_of_generalised_advantages(rows, gamma, decay):
    rewards, dones, ends, values, next_values, _ = columns_of(rows)
    # Within an episode the next value is that of the next row, as in a real rollout.
    following = np.where(ends, next_values, np.append(values[1:], next_values[-1]))
    _, targets = estimate(rewards, dones, ends, values, following, np.ones(len(rows)), gamma, decay)
    _, expected = gae(rewards, dones, ends, values, following, gamma, decay)
    np.testing.assert_allclose(targets, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("useless", [0.0, 1e30, np.nan])
def test_what_lies_behind_a_termination_does_not_matter(useless):
    flags = np.array([False, True])
    found = estimate([1.0, 1.0], flags, flags, [2.0, 2.0], [2.0, useless], [1.0, 1.0], 0.5)
    np.testing.assert_allclose(found[0], [1 + 0.5 * 1 - 2, -1])
    np.testing.assert_allclose(found[1], [2 + 0 + 0.5 * -1, 1])


def test_a_time_limit_is_bootstrapped_and_ends_the_trace():
    cut, never = np.array([True, False]), np.zeros(2, bool)
    advantages, targets = estimate([1.0, 5.0], never, cut, [0.0, 0.0], [10.0, 0.0], [1.0, 1.0], 0.5)
    np.testing.assert_allclose(targets, [6.0, 5.0])
    np.testing.assert_allclose(advantages, [6.0, 5.0])


def test_unequal_shapes_are_refused_by_name():
    with pytest.raises(ValueError, match=r"vtrace needs equal shapes: rewards \(2,\), ratios \(3,\)"):
        vtrace(*[np.zeros(2)] * 5, np.zeros(3), 0.9)
