"""The small quadratic program: against trying everything, in closed form, and where nothing is lawful."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dressage.shield import project
from tests.oracles.plain_projection import nearest_point
from tests.strategies import numbers

many = jax.jit(jax.vmap(project))
one = jax.jit(project)


@pytest.mark.parametrize(("size", "rows"), [(1, 3), (2, 5), (3, 4)])
def test_the_point_found_is_the_nearest_lawful_one(size, rows):
    rng, problems = np.random.default_rng(size), 300
    proposals = 2 * rng.normal(size=(problems, size))
    # Normals of very unlike lengths, which must not matter.
    normals = rng.normal(size=(problems, rows, size)) * rng.choice([0.01, 1.0, 30.0], (problems, rows, 1))
    offsets = np.linalg.norm(normals, axis=2) * (0.5 * rng.normal(size=(problems, rows)) + 0.3)
    low, high = np.full((problems, size), -1.5), np.full((problems, size), 1.0)
    found = many(proposals, normals, offsets, low, high)
    expected = [nearest_point(*case) for case in zip(proposals, normals, offsets, low, high, strict=True)]
    assert found.feasible.tolist() == [point is not None for point in expected]
    feasible = np.asarray(found.feasible)
    assert 0.2 < feasible.mean() < 0.95
    np.testing.assert_allclose(
        found.point[feasible], [point for point in expected if point is not None], atol=3e-5
    )
    assert np.all((found.point >= low) & (found.point <= high))


WIDE = np.full(3, np.inf, np.float32)


@given(numbers((3,)), numbers((3,)), st.floats(-5, 5, width=32))
def test_one_constraint_is_met_in_closed_form(proposal, normal, offset):
    found = one(proposal, normal[None], jnp.array([offset]), -WIDE, WIDE)
    square = float(normal.astype(np.float64) @ normal)
    if square < 1e-6:
        return
    excess = max(0.0, float(normal.astype(np.float64) @ proposal) - offset)
    expected = proposal - excess / square * normal
    np.testing.assert_allclose(found.point, expected, atol=2e-5 * (1 + np.abs(expected).max()))
    assert bool(found.feasible)


def test_a_lawful_proposal_is_left_as_it_is():
    found = one(jnp.array([0.3, -0.7, 0.1]), jnp.eye(3)[:1], jnp.array([0.3]), -WIDE, WIDE)
    assert found.point.tolist() == jnp.array([0.3, -0.7, 0.1]).tolist()


def test_parallel_and_repeated_constraints_do_not_confuse_it():
    normals = jnp.array([[1.0, 0, 0], [2.0, 0, 0], [1.0, 0, 0], [-1.0, 0, 0]])
    found = one(jnp.array([5.0, 1.0, 2.0]), normals, jnp.array([1.0, 1.0, 0.5, 0.5]), -WIDE, WIDE)
    np.testing.assert_allclose(found.point, [0.5, 1, 2], atol=1e-6)
    assert bool(found.feasible)


def test_where_nothing_is_lawful_the_squares_of_violations_are_least():
    normals = jnp.array([[1.0, 0, 0], [-2.0, 0, 0], [0, 1.0, 0], [0, 0, 0]])
    # u_0 <= -1 and u_0 >= 1 pull alike, whatever the length of their normals; u_1 can be kept.
    found = one(jnp.array([0.7, 3.0, 0.2]), normals, jnp.array([-1.0, -2.0, 0.5, 0.0]), -WIDE, WIDE)
    np.testing.assert_allclose(found.point, [0, 0.5, 0.2], atol=1e-3)
    assert not bool(found.feasible)


def test_bounds_are_kept_where_they_make_a_constraint_hopeless():
    low, high = jnp.array([-1.0, -1.0, -1.0]), jnp.ones(3)
    found = one(jnp.array([0.5, 9.0, 0.0]), jnp.eye(3)[:1], jnp.array([-3.0]), low, high)
    np.testing.assert_allclose(found.point, [-1, 1, 0], atol=1e-5)
    assert not bool(found.feasible)


def test_a_row_of_zeros_is_hopeless_only_below_zero_and_moves_nothing():
    proposal = jnp.array([0.5, 0.0, 0.0])
    kept = one(proposal, jnp.zeros((1, 3)), jnp.zeros(1), -WIDE, WIDE)
    broken = one(proposal, jnp.zeros((1, 3)), jnp.array([-1.0]), -WIDE, WIDE)
    assert (bool(kept.feasible), bool(broken.feasible)) == (True, False)
    assert kept.point.tolist() == broken.point.tolist() == [0.5, 0, 0]


def test_a_proposal_that_is_no_number_counts_as_zero():
    found = one(jnp.array([jnp.nan, 2.0, 0.0]), jnp.eye(3)[:1], jnp.array([1.0]), -WIDE, WIDE)
    assert found.point.tolist() == [0, 2, 0]
