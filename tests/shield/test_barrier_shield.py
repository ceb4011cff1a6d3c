"""Barrier shields: conditions by hand, both relative degrees simulated, a way out where steps are sampled."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.errors import ConfigError, UnsupportedSpaceError
from dressage.shield import BarrierShield, ControlBarrier, SampledBarrier

WALL = 1.0


def drift_of_a_point(state):
    return jnp.zeros_like(state)


def push_of_a_point(state):
    return jnp.ones((1, 1))


def drift_of_a_mass(state):
    half = state.shape[0] // 2
    return jnp.concatenate([state[half:], jnp.zeros(half)])


def push_of_a_mass(state):
    half = state.shape[0] // 2
    return jnp.concatenate([jnp.zeros((half, half)), jnp.eye(half)])


def before_the_wall(state):
    return WALL - state[:1]


def outside_the_disc(state):
    return jnp.sum(jnp.square(state[:2]), keepdims=True) - 1.0


POINT = ControlBarrier(drift_of_a_point, push_of_a_point, before_the_wall)
MASS = ControlBarrier(drift_of_a_mass, push_of_a_mass, before_the_wall, degree=2, inner_gain=1.0)
ORBIT = ControlBarrier(drift_of_a_mass, push_of_a_mass, outside_the_disc, degree=2, inner_gain=2.0)
FREE = (-np.inf,), (np.inf,)


def decide(shield, state, proposal, parameters=()):
    return jax.jit(shield.decide)(
        (), jnp.asarray(state, jnp.float32), jnp.asarray(proposal, jnp.float32), jnp.asarray(parameters)
    )


@pytest.mark.parametrize(
    ("constraint", "state", "gain", "greatest"),
    [
        (POINT, [0.0], 2.0, 2.0),  # u <= alpha (1 - x)
        (POINT, [0.75], 2.0, 0.5),
        (POINT, [1.5], 2.0, -1.0),  # outside it comes back as fast
        (POINT, [0.0], 0.0, 0.0),
        # u <= alpha_1 alpha (1 - x) - (alpha_1 + alpha) v, with alpha_1 = 1.
        (MASS, [0.0, 0.2], 2.0, 1.4),
        (MASS, [0.9, -0.3], 2.0, 1.1),
        (MASS, [1.0, 0.0], 5.0, 0.0),
    ],
)
def test_the_greatest_lawful_push_is_that_of_the_equations(constraint, state, gain, greatest):
    shield = BarrierShield(constraint, *FREE, gain=gain)
    bold = decide(shield, state, [greatest + 3])
    np.testing.assert_allclose(bold.action, [greatest], atol=1e-5)
    assert bool(bold.intervened) and bool(bold.feasible)
    meek = decide(shield, state, [greatest - 3])
    np.testing.assert_allclose(meek.action, [greatest - 3], rtol=1e-6)
    assert not bool(meek.intervened)


def test_a_condition_of_degree_two_is_that_of_a_calculation_by_hand():
    # h = |p|^2 - 1: h' = 2 p.v = -1.6, h'' = 2 |v|^2 + 2 p.u = 1.28 + 4 u_0.
    state = jnp.array([2.0, 0.0, -0.4, 0.8])
    velocity_square, slope, value = 0.16 + 0.64, -1.6, 3.0
    margins = ORBIT.margins(state, jnp.array([0.5, 9.0]), jnp.float32(3.0))
    expected = 2 * velocity_square + 4 * 0.5 + (2 + 3) * slope + 6 * value
    np.testing.assert_allclose(margins, [expected], rtol=1e-5)


def test_the_parameter_is_the_gain_through_softplus():
    shield = BarrierShield(POINT, *FREE)
    assert shield.parameter_dim == 1
    for number, gain in ((0.0, np.log(2)), (3.0, 3.04858735), (-200.0, 0.0)):
        np.testing.assert_allclose(decide(shield, [0.0], [9.0], [number]).action, [gain], atol=1e-5)
    bold = BarrierShield(POINT, *FREE, gain_scale=10.0)
    for number, gain in ((0.0, 10 * np.log(2)), (3.0, 30.4858735)):
        np.testing.assert_allclose(decide(bold, [0.0], [99.0], [number]).action, [gain], rtol=1e-5)
    for number in (1e30, np.nan, np.inf, -np.inf):
        assert np.isfinite(decide(shield, [0.5], [9.0], [number]).action).all()


def simulate(shield, state, proposals, parameters, dt):
    """Drive copies of a mass by its shield: exact dynamics within each short step of constant push."""

    def step(state, given):
        proposal, parameter = given
        decided = jax.vmap(shield.decide, in_axes=(None, 0, 0, 0))((), state, proposal, parameter)
        half = state.shape[1] // 2
        position, velocity = state[:, :half], state[:, half:]
        position = position + dt * velocity + dt**2 / 2 * decided.action
        state = jnp.concatenate([position, velocity + dt * decided.action], axis=1)
        return state, (state, decided.feasible)

    return jax.jit(lambda s, g: jax.lax.scan(step, s, g))(state, (proposals, parameters))[1]


@pytest.mark.parametrize(
    ("constraint", "start"), [(MASS, [0.0, 0.0]), (ORBIT, [2.0, 0.5, 0.0, 0.0])], ids=["wall", "disc"]
)
def test_degree_two_keeps_a_mass_safe_whatever_is_proposed_and_however_the_gain_changes(constraint, start):
    copies, steps, dt = 64, 1600, 0.002
    size = len(start) // 2
    shield = BarrierShield(constraint, (-np.inf,) * size, (np.inf,) * size)
    keys = jax.random.split(jax.random.key(0), 3)
    proposals = 5 * jax.random.normal(keys[0], (steps, copies, size))
    # Half of the copies push straight at the obstacle all the time.
    target = jnp.array([9.0, 0.0]) if size == 1 else -jnp.array(start[:2])
    proposals = proposals.at[:, ::2].set(9 * target[:size])
    parameters = jax.random.choice(keys[1], jnp.array([-5.0, 0.0, 2.0, 20.0]), (steps, copies, 1))
    states, feasible = simulate(shield, jnp.tile(jnp.array(start), (copies, 1)), proposals, parameters, dt)
    heights = jax.vmap(jax.vmap(constraint.barrier))(states)
    assert bool(feasible.all())
    # Sampled, h misses by the order of the squared step alone.
    assert float(heights.min()) > -50 * dt**2
    assert float(heights.min()) < 0.1  # and they do come close


def test_an_unlawful_state_within_bounds_is_reported_and_violated_least():
    shield = BarrierShield(MASS, (-1.0,), (1.0,), gain=1.0)
    fast = decide(shield, [0.9, 2.0], [0.5])
    assert fast.action.tolist() == [-1]
    assert not bool(fast.feasible) and bool(fast.intervened)


def car_step(state, action):
    speed = jnp.maximum(state[1] + 0.1 * action[0], 0.0)
    return jnp.stack([state[0] - 0.1 * speed, speed])


def car_room(state):
    """What is left of the way to a wall after braking at 1 m/s^2, in steps of 0.1 s."""
    steps = jnp.floor(state[1] / 0.1)
    return state[0] - 0.1 * (steps * state[1] - 0.1 * steps * (steps + 1) / 2)


CAR = SampledBarrier(car_step, car_room, lambda state: -jnp.ones(1), 0.1)


def test_a_sampled_barrier_holds_step_by_step_for_any_gain():
    shield = BarrierShield(CAR, (-1.0,), (1.0,), cuts=2)

    def step(state, parameter):
        decided = jax.vmap(shield.decide, in_axes=(None, 0, None, 0))((), state, jnp.ones(1), parameter)
        following = jax.vmap(car_step)(state, decided.action)
        return following, (following, decided.feasible)

    start = jnp.tile(jnp.array([5.0, 0.0]), (32, 1))
    gains = jax.random.choice(jax.random.key(0), jnp.array([-6.0, 0.0, 3.0, 1e6]), (400, 32, 1))
    gains = gains.at[:, 0].set(1e6)
    states, feasible = jax.jit(lambda s, g: jax.lax.scan(step, s, g))(start, gains)[1]
    assert float(states[..., 0].min()) > -1e-4 and bool(feasible.all())
    # The boldest drives up to the wall, within what is covered in a step.
    assert float(states[-1, 0, 0]) < 0.05


def test_proposals_choose_among_actions_by_number():
    shield = BarrierShield(POINT, (-2.0,), (2.0,), gain=1.0, choices=((-2.0,), (0.0,), (2.0,)))
    space = shield.proposal_space(gymnasium.spaces.Box(-2, 2, (1,)), "ann")
    assert space == gymnasium.spaces.Discrete(3)
    bold = shield.decide((), jnp.array([0.5]), jnp.int32(2), jnp.zeros(0))
    np.testing.assert_allclose(bold.action, [0.5], atol=1e-6)
    meek = shield.decide((), jnp.array([0.5]), jnp.int32(0), jnp.zeros(0))
    assert meek.action.tolist() == [-2] and not bool(meek.intervened)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: ControlBarrier(None, None, None, degree=3), ConfigError, "degree must be 1 or 2, got 3"),
        (lambda: ControlBarrier(None, None, None, 2, 0.0), ConfigError, "inner_gain must be > 0, got 0.0"),
        (lambda: SampledBarrier(None, None, None, 0.0), ConfigError, "time_step must be > 0, got 0.0"),
        (lambda: BarrierShield(POINT, (1.0,), (0.0,)), ConfigError, "each no greater than its upper one"),
        (lambda: BarrierShield(POINT, (), ()), ConfigError, "as many lower as upper bounds"),
        (lambda: BarrierShield(POINT, *FREE, gain=-1.0), ConfigError, "gain must be >= 0 or None, got -1.0"),
        (lambda: BarrierShield(POINT, *FREE, gain_scale=0.0), ConfigError, "gain_scale must be > 0, got 0.0"),
        (lambda: BarrierShield(POINT, *FREE, cuts=0), ConfigError, "cuts must be >= 1, got 0"),
        (
            lambda: BarrierShield(POINT, *FREE, choices=((1.0, 2.0),)),
            ConfigError,
            "needs choices of 1 numbers each",
        ),
        (
            lambda: BarrierShield(POINT, *FREE).proposal_space(gymnasium.spaces.Discrete(2), "ann"),
            UnsupportedSpaceError,
            r"shields a Box of shape \(1,\), .*; agent 'ann' acts in Discrete\(2\)",
        ),
    ],
)
def test_what_does_not_fit_is_refused(make, error, match):
    with pytest.raises(error, match=match):
        make()
