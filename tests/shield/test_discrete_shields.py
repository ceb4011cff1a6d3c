"""Mask and probabilistic shields: decisions by hand, least probabilities, what is refused."""

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.errors import ConfigError, UnsupportedSpaceError
from dressage.shield import MaskShield, ProbabilisticShield, least_violation
from dressage.shield.decision import nearest_allowed


@pytest.mark.parametrize(
    ("risks", "proposal", "threshold", "action", "any_allowed"),
    [
        ([0.1, 0.5, 0.0, 0.9], 1, 0.5, 1, True),  # allowed: it passes
        ([0.1, 0.5, 0.0, 0.9], 1, 0.2, 2, True),  # of two neighbours the less risky
        ([0.1, 0.5, 0.2, 0.9], 3, 0.1, 0, True),  # the only one, however far
        ([0.1, 0.5, 0.2, 0.9], 3, 0.3, 2, True),
        ([0.4, 0.5, 0.4, 0.9], 3, 0.3, 2, False),  # none: the least risky, nearest first
        ([0.4, 0.5, 0.4, 0.9], 0, 0.3, 0, False),
        ([np.nan, 0.5, np.nan, 0.9], 2, 0.6, 1, True),  # an unknown risk is no small one
        ([0.0, 0.0], 1, 0.0, 1, True),
    ],
)
def test_the_nearest_allowed_action_is_taken(risks, proposal, threshold, action, any_allowed):
    chosen, allowed = nearest_allowed(jnp.int32(proposal), jnp.array(risks), jnp.float32(threshold))
    assert (int(chosen), bool(allowed)) == (action, any_allowed)


def risks_of(seen):
    return seen


def test_a_mask_shields_parameter_is_its_threshold_through_the_sigmoid():
    shield = MaskShield(risks_of, greatest_risk=0.4)
    assert (shield.parameter_dim, shield.memory_dim) == (1, 0)
    risks = jnp.array([0.05, 0.19, 0.21, 0.39])
    # sigmoid(0) = 1/2: up to 0.2.
    decided = shield.decide((), risks, jnp.int32(3), jnp.zeros(1))
    assert (int(decided.action), bool(decided.intervened), bool(decided.feasible)) == (1, True, True)
    decided = shield.decide((), risks, jnp.int32(3), jnp.array([20.0]))
    assert (int(decided.action), bool(decided.intervened)) == (3, False)
    decided = shield.decide((), risks, jnp.int32(3), jnp.array([-20.0]))
    assert (int(decided.action), bool(decided.feasible)) == (0, False)


def test_a_fixed_threshold_takes_no_parameter():
    shield = MaskShield(risks_of, threshold=0.0)
    assert shield.parameter_dim == 0
    forbidden = jnp.array([0.0, 1.0, 1.0])
    assert int(shield.decide((), forbidden, jnp.int32(2), jnp.zeros(0)).action) == 0


# Two states and an end. From 0: 0.1 to state 1, or 0.3 to the end; from 1: 0.2 to the end, or 0.05 back.
VIOLATION = np.array([[0.1, 0.3], [0.2, 0.05], [0.0, 0.0]])
TRANSITIONS = np.zeros((3, 2, 3))
TRANSITIONS[0, 0, 1] = TRANSITIONS[0, 1, 2] = TRANSITIONS[1, 0, 2] = TRANSITIONS[1, 1, 0] = 1
TRANSITIONS[2, :, 2] = 1


def test_the_least_probability_of_a_violation_is_that_of_a_calculation_by_hand():
    # From 1 it is best to leave: 0.2. From 0 to 1: 0.1 + 0.9 * 0.2 = 0.28 < 0.3. Back from 1: 0.316 > 0.2.
    np.testing.assert_allclose(least_violation(VIOLATION, TRANSITIONS), [0.28, 0.2, 0.0], atol=1e-12)


def test_going_round_in_circles_for_ever_is_safe_where_it_costs_nothing():
    violation = np.array([[0.5, 0.0], [0.5, 0.0], [0.0, 0.0]])
    # State 1's safe action leads to state 0, whose safe action stays.
    transitions = np.zeros((3, 2, 3))
    transitions[:, 0, 2] = transitions[0, 1, 0] = transitions[1, 1, 0] = transitions[2, 1, 2] = 1
    assert least_violation(violation, transitions).tolist() == [0, 0, 0]


def test_a_violation_that_only_chance_avoids_is_not_taken_for_sure():
    # One action, which violates with probability 0.1, goes on with half of the rest: p = 0.1 + 0.9 * 0.5 p.
    violation = np.array([[0.1], [0.0]])
    transitions = np.array([[[0.5, 0.5]], [[0.0, 1.0]]])
    np.testing.assert_allclose(least_violation(violation, transitions), [0.1 / 0.55, 0], atol=1e-11)


def test_a_probabilistic_shield_spends_its_bound_as_the_equations_say():
    shield = ProbabilisticShield(VIOLATION, TRANSITIONS, 0.29)
    assert (shield.parameter_dim, shield.memory_dim) == (1, 1)
    bound = shield.begin(jnp.int32(0))
    # Action 1 would make it 0.3; action 0 leaves 0.29 - 0.28 for the 0.9 who survive.
    decided = shield.decide(bound, jnp.int32(0), jnp.int32(1), jnp.array([50.0]))
    assert (int(decided.action), bool(decided.intervened), bool(decided.feasible)) == (0, True, True)
    bound = shield.follow(decided.memory, jnp.int32(1))
    np.testing.assert_allclose(bound, 0.2 + 0.01 / 0.9, rtol=1e-5)
    np.testing.assert_allclose(shield.features(bound), [(0.2 + 0.01 / 0.9) / 0.29], rtol=1e-5)
    # In state 1 going back would make it 0.316.
    assert int(shield.decide(bound, jnp.int32(1), jnp.int32(1), jnp.array([50.0])).action) == 0


def test_the_share_of_the_slack_decides_what_passes():
    shield = ProbabilisticShield(VIOLATION, TRANSITIONS, 0.32)
    bound = shield.begin(jnp.int32(0))
    # 0.28 + share * 0.04 reaches 0.3 from one half on.
    assert int(shield.decide(bound, jnp.int32(0), jnp.int32(1), jnp.array([0.1])).action) == 1
    assert int(shield.decide(bound, jnp.int32(0), jnp.int32(1), jnp.array([-0.1])).action) == 0
    careless = ProbabilisticShield(VIOLATION, TRANSITIONS, 0.32, learned=False)
    assert int(careless.decide(bound, jnp.int32(0), jnp.int32(1), jnp.zeros(0)).action) == 1


def test_a_state_beyond_its_bound_is_reported_and_left_by_the_least_risk():
    shield = ProbabilisticShield(VIOLATION, TRANSITIONS, 0.25, initial=(1,))
    decided = shield.decide(shield.begin(jnp.int32(0)), jnp.int32(0), jnp.int32(1), jnp.array([9.0]))
    assert (int(decided.action), bool(decided.feasible)) == (0, False)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: MaskShield(risks_of, greatest_risk=0.0), ConfigError, "greatest_risk must be > 0, got 0.0"),
        (
            lambda: MaskShield(risks_of).proposal_space(gymnasium.spaces.MultiDiscrete([2, 2]), "ann"),
            UnsupportedSpaceError,
            "MaskShield shields Discrete actions; agent 'ann' acts in MultiDiscrete",
        ),
        (
            lambda: ProbabilisticShield(VIOLATION, TRANSITIONS, 0.2),
            ConfigError,
            r"cannot keep the bound 0\.2: .* can reach is 0\.28\. Give at least that",
        ),
        (lambda: ProbabilisticShield(VIOLATION, TRANSITIONS, 1.5), ConfigError, "bound must be > 0 and <= 1"),
        (
            lambda: ProbabilisticShield(VIOLATION, TRANSITIONS[:2], 0.3),
            ConfigError,
            r"needs transitions of shape \(3, 2, 3\)",
        ),
        (lambda: ProbabilisticShield(VIOLATION + 0.9, TRANSITIONS, 0.3), ConfigError, r"within \[0, 1\]"),
        (lambda: ProbabilisticShield(VIOLATION, TRANSITIONS * 0.9, 0.3), ConfigError, "rows add up to 1"),
        (
            lambda: ProbabilisticShield(VIOLATION, TRANSITIONS, 0.3).proposal_space(
                gymnasium.spaces.Discrete(3), "ann"
            ),
            UnsupportedSpaceError,
            r"has 2 actions; agent 'ann' acts in Discrete\(3\)",
        ),
    ],
)
def test_what_does_not_fit_is_refused(make, error, match):
    with pytest.raises(error, match=match):
        make()
