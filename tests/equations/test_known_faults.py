"""Faults of public implementations of constrained learners: what is right, and that the fault would show.

Each check is run on our function, which passes, and on the faulty form, which must not.
"""

import jax
import numpy as np
import pytest

from dressage.equations.cost_shaping import failure_labels
from dressage.equations.lagrange import update_multiplier
from dressage.equations.trust_region import StepCase, cpo_step
from dressage.rl.base import EpisodicCostTracker
from tests.oracles.plain_trust_region import best_step

HESSIAN = np.array([[2.0, 0.5], [0.5, 1.0]])


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def ours(g, b, c, delta):
    return np.asarray(cpo_step(g, b, lambda x: HESSIAN @ x, c, delta, iterations=6).step)


def by_the_dual(g, b, c, delta, *, sign_of_r=1.0, orders_the_intervals=True):
    """The closed form of Achiam et al. 2017, theorem 2, for a gain: the least of two duals, each on its part.

    The cost constraint binds where `multiplier * c + r > 0`: below -r/c for c < 0, above it for c > 0. One
    fault takes r from a loss that was negated elsewhere; another keeps the order of the parts for both signs.
    """
    v, w = np.linalg.solve(HESSIAN, g), np.linalg.solve(HESSIAN, b)
    q, r, s = g @ v, sign_of_r * (g @ w), b @ w
    free, room = q - r**2 / s, 2 * delta - c**2 / s
    border = -r / c
    below, above = (0.0, border), (max(0.0, border), np.inf)
    binding, slack = (above, below) if orders_the_intervals and c > 0 else (below, above)
    # The lower end first, then the upper one: on an inverted interval the result is its upper end.
    tight = min(max(np.sqrt(free / room), binding[0]), binding[1])
    loose = min(max(np.sqrt(q / (2 * delta)), slack[0]), slack[1])
    if loose <= 0 or free / tight + tight * room - 2 * r * c / s < q / loose + 2 * delta * loose:
        return (v - max(0.0, (tight * c + r) / s) * w) / tight
    return v / loose


def with_the_sign_of_r_of_the_loss(g, b, c, delta):
    return by_the_dual(g, b, c, delta, sign_of_r=-1.0)


def with_an_inverted_interval(g, b, c, delta):
    return by_the_dual(g, b, c, delta, orders_the_intervals=False)


def check_best(step_of, g, b, c, delta=0.01):
    """The step is lawful and no lawful step gains more."""
    x = step_of(np.array(g, float), np.array(b, float), c, delta)
    best, lawful = best_step(np.array(g, float), np.array(b, float), HESSIAN, c, delta)
    assert lawful
    assert x @ HESSIAN @ x <= 2 * delta * (1 + 1e-9)
    assert c + np.dot(b, x) <= 1e-9
    np.testing.assert_allclose(np.dot(g, x), np.dot(g, best), rtol=1e-6)


# Reward and cost pull along one another, and the constraint binds; inside the limit, then outside of it.
INSIDE, OUTSIDE = {"g": (1, 2), "b": (1, 1), "c": -0.05}, {"g": (1, 2), "b": (1, 1), "c": 0.05}


@pytest.mark.parametrize(
    ("faulty", "problem"),
    [
        (with_the_sign_of_r_of_the_loss, INSIDE),
        (with_the_sign_of_r_of_the_loss, OUTSIDE),
        (with_an_inverted_interval, OUTSIDE),
    ],
)
def test_the_dual_of_the_trust_region_has_the_right_signs_and_intervals(faulty, problem):
    check_best(ours, **problem)
    check_best(by_the_dual, **problem)
    with pytest.raises(AssertionError):
        check_best(faulty, **problem)


def excess_per_step(tracker, limit):
    return (tracker.estimate - limit) * tracker.last_scale


def excess_per_episode(tracker, limit):
    return tracker.estimate - limit


def check_reachable(excess):
    """Episodes of 50 steps that cost 30 where 25 are allowed can be brought back within one step."""
    tracker = EpisodicCostTracker(gamma=1.0, initial_return=0.0)
    ends = np.arange(100) % 50 == 49
    assert tracker.update(np.full(100, 0.6), ends) == 2
    c = excess(tracker, 25.0)
    # b and its surrogate are means over steps: s = 8/7, so c may be up to 0.151.
    record = cpo_step(np.array([1.0, 2.0]), np.ones(2), lambda x: HESSIAN @ x, c, 0.01, iterations=6)
    np.testing.assert_allclose(record.s, 8 / 7, rtol=1e-9)
    np.testing.assert_allclose(c, 0.1, rtol=1e-6)
    np.testing.assert_allclose(c**2 / record.s, 0.00875, rtol=1e-6)
    assert record.case == StepCase.ACTIVE
    np.testing.assert_allclose(c + record.step.sum(), 0.0, atol=1e-9)


def test_the_excess_of_an_episode_is_in_the_units_of_a_surrogate_per_step():
    check_reachable(excess_per_step)
    with pytest.raises(AssertionError):
        check_reachable(excess_per_episode)


def adam_like(multiplier, cost, limit, rate):
    """Moves by the rate, whatever the violation: the first step of Adam."""
    return multiplier + rate * np.sign(cost - limit)


def without_projection(multiplier, cost, limit, rate):
    return multiplier + rate * (cost - limit)


def check_multiplier(update):
    """Moves in proportion to the violation, and never below 0."""
    assert float(update(1.0, 35.0, 25.0, 0.05)) == pytest.approx(1.5)
    assert float(update(1.0, 27.0, 25.0, 0.05)) == pytest.approx(1.1)
    assert float(update(0.2, 5.0, 25.0, 0.05)) == 0.0


@pytest.mark.parametrize("faulty", [adam_like, without_projection])
def test_a_multiplier_moves_by_the_violation_and_stays_a_multiplier(faulty):
    check_multiplier(update_multiplier)
    with pytest.raises(AssertionError):
        check_multiplier(faulty)


def across_episodes(costs, ends, horizon):
    """Looks ahead without minding where an episode ends, and calls the end of the rollout safe."""
    windows = [np.any(costs[t : t + horizon] > 0) for t in range(len(costs))]
    return np.array(windows, float), np.ones(len(costs), bool)


def check_labels(labels_of):
    """Step 3 ends an episode and does not see the cost at step 6; step 7 is cut with nothing seen."""
    costs = np.array([0, 0, 1, 0, 0, 0, 1, 0.0])
    ends = np.array([0, 0, 0, 1, 0, 0, 0, 0])
    labels, known = labels_of(costs, ends, 4)
    assert np.asarray(labels).tolist() == [1, 1, 1, 0, 1, 1, 1, 0]
    assert np.asarray(known).tolist() == [True] * 7 + [False]


def test_a_failure_is_foreseen_within_its_own_episode_and_no_further_than_the_rollout():
    check_labels(failure_labels)
    with pytest.raises(AssertionError):
        check_labels(across_episodes)
