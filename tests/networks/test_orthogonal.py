"""Orthogonal initialisation: orthonormal, uniform, and free of what can stop a program for ever."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.networks import KERNEL_INITS
from dressage.networks.orthogonal import orthogonal, orthonormal_columns


@pytest.mark.parametrize("shape", [(5, 5), (9, 4), (4, 9), (2, 3, 4), (1, 7)])
def test_the_fewer_of_rows_and_columns_are_orthogonal_and_of_the_norm_asked_for(shape):
    matrix = np.asarray(orthogonal(3.0)(jax.random.key(0), shape)).reshape(-1, shape[-1])
    product = matrix.T @ matrix if matrix.shape[0] >= matrix.shape[1] else matrix @ matrix.T
    np.testing.assert_allclose(product, 9 * np.eye(len(product)), atol=1e-5)


def test_columns_are_those_of_a_factorisation_with_a_positive_diagonal():
    matrix = jax.random.normal(jax.random.key(1), (7, 5))
    q, r = np.linalg.qr(np.asarray(matrix, np.float64))
    np.testing.assert_allclose(orthonormal_columns(matrix), q * np.sign(np.diag(r)), atol=1e-5)


def test_nearly_dependent_columns_stay_orthogonal():
    base = np.random.default_rng(0).normal(size=(30, 1))
    matrix = jnp.asarray(base + 1e-4 * np.random.default_rng(1).normal(size=(30, 8)), jnp.float32)
    found = np.asarray(orthonormal_columns(matrix))
    np.testing.assert_allclose(found.T @ found, np.eye(8), atol=1e-4)


def test_entries_have_the_moments_of_the_uniform_distribution():
    keys = jax.random.split(jax.random.key(0), 4000)
    entries = np.asarray(jax.jit(jax.vmap(lambda key: orthogonal(1.0)(key, (4, 4))))(keys))
    # An entry's mean is 0 and its variance 1/4; its standard errors here are 0.008 and 0.0045.
    np.testing.assert_allclose(entries.mean(0), 0.0, atol=0.035)
    np.testing.assert_allclose(entries.var(0), 0.25, atol=0.02)


@pytest.mark.parametrize("name", KERNEL_INITS)
def test_no_initialisation_calls_lapack_which_can_block_under_vmap(name):
    draw = jax.vmap(lambda key: KERNEL_INITS[name](1.0)(key, (8, 8)))
    text = jax.jit(draw).lower(jax.random.split(jax.random.key(0), 3)).as_text()
    assert "lapack" not in text and "custom_call" not in text
