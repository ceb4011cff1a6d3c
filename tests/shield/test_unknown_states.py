"""What a shield must not call safe: states and risks that it cannot know, and settings without sense."""

import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from dressage.errors import ConfigError, EnvironmentContractError, UnsupportedSpaceError
from dressage.shield import BarrierShield, ControlBarrier, MaskShield, ProbabilisticShield
from dressage.shield.augmented import ShieldedAgent

MASS = ControlBarrier(
    lambda state: jnp.stack([state[1], 0.0]),
    lambda state: jnp.array([[0.0], [1.0]]),
    lambda state: 1.0 - state[:1],
    degree=2,
)
NONE = jnp.zeros(0)
VIOLATION = np.array([[0.0, 1.0], [0.5, 0.5]])
TRANSITIONS = np.broadcast_to(np.eye(2)[:, None], (2, 2, 2)).copy()
NAN = float("nan")


@pytest.mark.parametrize("state", [[NAN, 0.2], [0.0, NAN]])
def test_nothing_is_lawful_in_a_state_that_is_no_number(state):
    shield = BarrierShield(MASS, (-1.0,), (1.0,), gain=2.0)
    decision = shield.decide((), jnp.array(state), jnp.array([0.5]), NONE)
    assert not decision.feasible
    assert np.all(np.abs(decision.action) <= 1)


def test_a_proposal_that_is_no_number_counts_as_changed():
    shield = BarrierShield(MASS, (-1.0,), (1.0,), gain=2.0)
    decision = shield.decide((), jnp.array([-5.0, 0.0]), jnp.array([NAN]), NONE)
    assert decision.intervened
    assert decision.feasible
    assert decision.action.tolist() == [0.0]


@pytest.mark.parametrize(("low", "high"), [((NAN,), (1.0,)), ((-1.0,), (NAN,))])
def test_bounds_that_are_no_numbers_are_refused(low, high):
    with pytest.raises(ConfigError, match="as many lower as upper bounds"):
        BarrierShield(MASS, low, high, gain=2.0)


@pytest.mark.parametrize("shape", [(3,), (1, 2), ()])
def test_a_mask_needs_one_risk_for_each_action(shape):
    shield = MaskShield(lambda seen: jnp.zeros(shape), threshold=0.5)
    agent = ShieldedAgent("pilot", shield, spaces.Discrete(2), spaces.Box(-1, 1, (1,)))
    with pytest.raises(UnsupportedSpaceError, match="'pilot', which has 2 actions"):
        agent.decide((), jnp.zeros(1), jnp.int32(0), NONE)


@pytest.mark.parametrize("threshold", [NAN, -0.1])
def test_a_threshold_that_nothing_passes_is_refused(threshold):
    with pytest.raises(ConfigError, match="threshold must be >= 0"):
        MaskShield(lambda seen: jnp.zeros(2), threshold=threshold)


@pytest.mark.parametrize("state", [2, 9, -1])
def test_a_state_outside_of_the_tables_is_not_feasible(state):
    shield = ProbabilisticShield(VIOLATION, TRANSITIONS, 0.6)
    assert not shield.decide(shield.begin(0), jnp.int32(state), jnp.int32(1), jnp.zeros(1)).feasible
    assert shield.decide(shield.begin(0), jnp.int32(0), jnp.int32(1), jnp.zeros(1)).feasible


@pytest.mark.parametrize("seen", [jnp.array([0, 1]), jnp.float32(0)])
def test_a_state_is_one_whole_number(seen):
    shield = ProbabilisticShield(VIOLATION, TRANSITIONS, 0.6)
    with pytest.raises(EnvironmentContractError, match="index of a state, one integer"):
        shield.decide(shield.begin(0), seen, jnp.int32(0), jnp.zeros(1))


@pytest.mark.parametrize(
    ("violation", "transitions", "initial", "match"),
    [
        (VIOLATION.tolist(), TRANSITIONS, (0,), "NumPy arrays"),
        (VIOLATION[0], TRANSITIONS, (0,), "NumPy arrays"),
        (VIOLATION * NAN, TRANSITIONS, (0,), r"within \[0, 1\], got nan for action 0 in state 0"),
        (VIOLATION + [[0, 0], [0, 1]], TRANSITIONS, (0,), "got 1.5 for action 1 in state 1"),
        (VIOLATION, TRANSITIONS * NAN, (0,), "add up to 1; that of action 0 in state 0 adds up to nan"),
        (VIOLATION, TRANSITIONS * 0.5, (0,), "that of action 0 in state 0 adds up to 0.5"),
        (VIOLATION, TRANSITIONS, (), "states from 0 to 1"),
        (VIOLATION, TRANSITIONS, (5,), "states from 0 to 1"),
        (VIOLATION, TRANSITIONS, 0, "states from 0 to 1"),
    ],
)
def test_tables_that_say_nothing_are_refused(violation, transitions, initial, match):
    with pytest.raises(ConfigError, match=match):
        ProbabilisticShield(violation, transitions, 0.6, initial=initial)
