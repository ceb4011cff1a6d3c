"""The constrained trust-region step: hand-worked cases, SLSQP, degenerate gradients, and its solver."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.equations.trust_region import StepCase, conjugate_gradient, cpo_step
from tests.oracles.plain_trust_region import best_step

PAIR = np.array([[2.0, 0.5], [0.5, 1.0]])
TRIPLE = np.array([[3.0, 0.2, 0.0], [0.2, 2.0, -0.3], [0.0, -0.3, 1.0]])


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


@functools.partial(jax.jit, static_argnames="damping")
def step_of(g, b, hessian, c, delta, damping=0.0):
    return cpo_step(g, b, lambda x: hessian @ x, c, delta, iterations=3 * len(g), damping=damping)


@jax.jit
def step_gradients(g, b, c):
    return jax.grad(lambda g, b: jnp.sum(step_of(g, b, PAIR, c, 0.01).step), (0, 1))(g, b)


@pytest.mark.parametrize(
    ("g", "b", "c", "x", "half_square", "excess", "case"),
    [
        ((1, 2), (0.3, -0.1), -1, (0, 0.1414214), 0.01, -1.0141421, StepCase.UNCONSTRAINED),
        ((1, 2), (1, 1), -0.05, (-0.0818729, 0.1318729), 0.01, 0, StepCase.ACTIVE),
        ((1, 2), (1, 1), 0.05, (-0.1068729, 0.0568729), 0.01, 0, StepCase.ACTIVE),
        ((1, 2), (1, 1), 0.5, (-0.0377964, -0.1133893), 0.01, 0.3488142, StepCase.RECOVERY),
        ((1, 2), (0, 0), -1, (0, 0.1414214), 0.01, -1, StepCase.UNCONSTRAINED),
        ((1, 2), (0, 0), 0.5, (0, 0), 0, 0.5, StepCase.STATIONARY),
        ((0, 0), (1, 1), 0.05, (-0.0125, -0.0375), 0.0010938, 0, StepCase.ACTIVE),
        ((0, 0), (1, 1), -0.05, (0, 0), 0, -0.05, StepCase.STATIONARY),
    ],
)
def test_two_parameters_by_hand(g, b, c, x, half_square, excess, case):
    record = step_of(np.array(g, float), np.array(b, float), PAIR, float(c), 0.01)
    step = np.asarray(record.step)
    np.testing.assert_allclose(step, x, atol=1e-7)
    assert step @ PAIR @ step / 2 == pytest.approx(half_square, abs=1e-7)
    assert c + np.dot(b, step) == pytest.approx(excess, abs=1e-7)
    assert record.case == case
    assert record.finite


def test_parallel_gradients_stop_at_the_limit():
    record = step_of(np.ones(2), 2 * np.ones(2), PAIR, -0.02, 0.01)
    step = np.asarray(record.step)
    assert step.sum() == pytest.approx(0.01, rel=1e-9)
    assert step @ PAIR @ step / 2 <= 0.01
    assert record.cost_multiplier == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("c", "x", "gain", "excess", "case"),
    [
        (-0.03, (0.0247751, -0.1299876, 0.0457027), 0.1789373, 0, StepCase.ACTIVE),
        (0.6, (-0.0364792, -0.0447321, -0.1909957), None, 0.3972700, StepCase.RECOVERY),
    ],
)
def test_three_parameters_by_hand(c, x, gain, excess, case):
    g, b = np.array([0.5, -1, 0.8]), np.array([0.6, 0.2, 0.9])
    record = step_of(g, b, TRIPLE, c, 0.02)
    np.testing.assert_allclose(record.step, x, atol=1e-7)
    assert c + b @ np.asarray(record.step) == pytest.approx(excess, abs=1e-7)
    assert gain is None or g @ np.asarray(record.step) == pytest.approx(gain, abs=1e-7)
    assert record.case == case


def random_problems(number, dimension, seed):
    rng = np.random.default_rng(seed)
    factors = rng.normal(size=(number, dimension, dimension))
    hessians = factors @ factors.transpose(0, 2, 1) / dimension + 0.1 * np.eye(dimension)
    g, b = rng.normal(size=(2, number, dimension)) * 10.0 ** rng.uniform(-3, 3, (2, number, 1))
    delta = 10.0 ** rng.uniform(-4, -1, number)
    s = np.einsum("ni,ni->n", b, np.linalg.solve(hessians, b[..., None])[..., 0])
    c = rng.uniform(-1.5, 1.5, number) * np.sqrt(2 * delta * s)
    return g, b, hessians, c, delta


def assert_optimal(number, dimension, seed):
    problems = random_problems(number, dimension, seed)
    records = jax.jit(jax.vmap(step_of))(*problems)
    seen = set()
    for index, (g, b, hessian, c, delta) in enumerate(zip(*problems, strict=True)):
        x = np.asarray(records.step[index])
        best, lawful = best_step(g, b, hessian, c, delta)
        size = np.sqrt(2 * delta)
        assert x @ hessian @ x <= 2 * delta * (1 + 1e-9)
        if lawful:
            assert c + b @ x <= 1e-9 * size * np.sqrt(records.s[index])
            reach = size * np.sqrt(records.q[index])
            np.testing.assert_allclose(g @ x, g @ best, rtol=1e-6, atol=1e-6 * reach)
        else:
            np.testing.assert_allclose(b @ x, b @ best, rtol=1e-6)
        seen.add(int(records.case[index]))
        assert lawful == (records.case[index] != StepCase.RECOVERY)
    assert seen == {StepCase.UNCONSTRAINED, StepCase.ACTIVE, StepCase.RECOVERY}


def test_fifty_random_problems_agree_with_slsqp():
    assert_optimal(50, 4, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "dimension"), [(300, 2), (300, 3), (300, 6), (100, 12), (100, 20)])
def test_a_thousand_random_problems_agree_with_slsqp(number, dimension):
    assert_optimal(number, dimension, seed=dimension)


def test_the_multipliers_are_those_of_the_stationarity_condition():
    """In the plain and active cases g = lambda H x + nu b."""
    g, b, hessians, c, delta = random_problems(50, 4, seed=1)
    records = jax.jit(jax.vmap(step_of))(g, b, hessians, c, delta)
    kept = np.asarray(records.case) <= StepCase.ACTIVE
    pull = records.multiplier[:, None] * np.einsum("nij,nj->ni", hessians, records.step)
    pull = pull + records.cost_multiplier[:, None] * b
    scale = np.linalg.norm(g, axis=1, keepdims=True)
    np.testing.assert_allclose((pull / scale)[kept], (g / scale)[kept], atol=1e-7)
    assert (np.asarray(records.cost_multiplier) >= 0).all()


def test_the_step_does_not_depend_on_the_scale_of_the_gradients():
    g, b = np.array([0.5, -1, 0.8]), np.array([0.6, 0.2, 0.9])
    expected = step_of(g, b, TRIPLE, -0.03, 0.02).step
    for scale in (1e-30, 1e-8, 1e8):
        np.testing.assert_allclose(step_of(scale * g, b, TRIPLE, -0.03, 0.02).step, expected, rtol=1e-7)
        np.testing.assert_allclose(
            step_of(g, scale * b, TRIPLE, -0.03 * scale, 0.02).step, expected, rtol=1e-7
        )


def test_single_precision_keeps_both_constraints():
    g, b, hessians, c, delta = (np.asarray(a, np.float32) for a in random_problems(50, 4, seed=2))
    records = jax.jit(jax.vmap(step_of))(g, b, hessians, c, delta)
    assert records.step.dtype == jnp.float32
    x = np.asarray(records.step, np.float64)
    assert (np.einsum("ni,nij,nj->n", x, hessians, x) <= 2 * delta * (1 + 1e-3)).all()
    lawful = np.asarray(records.case) <= StepCase.ACTIVE
    slack = 1e-3 * np.sqrt(2 * delta * np.asarray(records.s))
    assert ((c + np.einsum("ni,ni->n", b, x))[lawful] <= slack[lawful]).all()


def test_nearly_parallel_gradients_in_single_precision_give_a_bounded_step():
    g = np.array([1.0, 1.0], np.float32)
    for tilt in (0.0, 1e-7, 1e-5, 1e-3):
        b = np.array([2.0, 2.0 + tilt], np.float32)
        record = step_of(g, b, PAIR.astype(np.float32), np.float32(-0.02), np.float32(0.01))
        x = np.asarray(record.step, np.float64)
        assert x @ PAIR @ x / 2 <= 0.01 * (1 + 1e-3)
        assert -0.02 + b @ x <= 1e-5


@pytest.mark.parametrize("place", ["g", "b", "c", "hessian"])
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_number_that_is_not_finite_gives_no_step_and_says_so(place, wrong):
    inputs = {"g": np.array([1.0, 2.0]), "b": np.array([1.0, 1.0]), "hessian": PAIR, "c": np.array(-0.05)}
    inputs[place] = np.where(inputs[place] == inputs[place].max(), wrong, inputs[place])
    record = step_of(**inputs, delta=0.01)
    np.testing.assert_array_equal(record.step, [0, 0])
    assert record.case == StepCase.STATIONARY
    assert not record.finite


def test_damping_is_added_to_the_diagonal():
    g, b = np.array([1.0, 2.0]), np.array([1.0, 1.0])
    damped = step_of(g, b, PAIR, -0.05, 0.01, damping=0.1)
    np.testing.assert_allclose(
        damped.step, step_of(g, b, PAIR + 0.1 * np.eye(2), -0.05, 0.01).step, rtol=1e-9
    )


@pytest.mark.parametrize("c", [-1.0, -0.05, 0.05, 0.5])
def test_the_step_has_a_finite_gradient_in_the_reward_gradient(c):
    for g in (jnp.array([1.0, 2.0]), jnp.array([1.0, 1.0]), jnp.zeros(2)):
        for b in (jnp.ones(2), jnp.zeros(2)):
            assert np.isfinite(step_gradients(g, b, c)).all()


@pytest.mark.parametrize("dimension", [1, 3, 10])
def test_conjugate_gradients_solve_exactly_in_as_many_steps_as_dimensions(dimension):
    rng = np.random.default_rng(dimension)
    factor = rng.normal(size=(dimension, dimension))
    matrix, b = factor @ factor.T + np.eye(dimension), rng.normal(size=dimension)
    solution = conjugate_gradient(lambda x: matrix @ x, b, iterations=3 * dimension)
    np.testing.assert_allclose(solution, np.linalg.solve(matrix, b), rtol=1e-8)


def test_conjugate_gradients_leave_a_solved_system_alone():
    np.testing.assert_allclose(
        conjugate_gradient(lambda x: 2 * x, np.array([1.0, -3.0]), iterations=50), [0.5, -1.5]
    )


def test_a_zero_right_side_gives_zeros():
    np.testing.assert_array_equal(conjugate_gradient(lambda x: PAIR @ x, np.zeros(2)), [0, 0])


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e25])
def test_right_sides_of_any_size_are_solved_in_single_precision(scale):
    b = np.array([1.0, 2.0], np.float32) * np.float32(scale)
    solution = conjugate_gradient(lambda x: PAIR.astype(np.float32) @ x, b)
    np.testing.assert_allclose(solution / np.float32(scale), [0, 2], atol=1e-5)


def test_a_loose_tolerance_stops_early():
    matrix, b = np.diag([1.0, 1.1, 1.2]), np.ones(3)
    rough = conjugate_gradient(lambda x: matrix @ x, b, iterations=30, tolerance=0.2)
    residual = np.linalg.norm(b - matrix @ np.asarray(rough)) / np.linalg.norm(b)
    assert 1e-6 < residual <= 0.2


def test_conjugate_gradients_work_under_vmap_and_grad():
    matrices = np.stack([PAIR, PAIR + np.eye(2)])
    right = np.array([[1.0, 2.0], [0.0, 0.0]])
    solutions = jax.vmap(lambda matrix, b: conjugate_gradient(lambda x: matrix @ x, b))(matrices, right)
    np.testing.assert_allclose(solutions, [np.linalg.solve(PAIR, right[0]), [0, 0]], atol=1e-9)
    # d/db of sum(M^-1 b) is M^-1 1.
    slope = jax.grad(lambda b: conjugate_gradient(lambda x: PAIR @ x, b).sum())(jnp.array([1.0, 2.0]))
    np.testing.assert_allclose(slope, np.linalg.solve(PAIR, np.ones(2)), rtol=1e-6)
