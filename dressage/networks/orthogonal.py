"""Orthogonal initialisation without LAPACK.

On a CPU, JAX hands the factorisations of a batch of matrices to the threads that run the program itself.
Where two of them run beside one another, as those of several layers do under `vmap`, each may wait for
threads that the other holds, for ever. This form is made of products alone.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

Initializer = jax.nn.initializers.Initializer


def orthogonal(gain: float) -> Initializer:
    """Return an initializer of matrices with orthonormal rows or columns, whichever are fewer, times `gain`.

    They are distributed uniformly over all such matrices.

    Args:
        gain: The norm of every such row or column.

    Reference:
        Saxe et al. 2014, "Exact solutions to the nonlinear dynamics of learning in deep linear neural
        networks"; Mezzadri 2007, "How to generate random matrices from the classical compact groups" for the
        distribution; Giraud et al. 2005, "Rounding error analysis of the classical Gram-Schmidt
        orthogonalization process" for taking each projection twice.
    """

    def draw(key: Array, shape: Any, dtype: Any = jnp.float32, out_sharding: Any = None) -> Array:  # noqa: ANN401, ARG001
        columns = shape[-1]
        rows = math.prod(shape) // columns
        gaussian = jax.random.normal(key, (max(rows, columns), min(rows, columns)), dtype)
        matrix = orthonormal_columns(gaussian)
        return gain * (matrix if rows >= columns else matrix.T).reshape(shape)

    return draw


def orthonormal_columns(matrix: Array) -> Array:
    """Orthonormalise the columns of a matrix `[m, n]`, `m >= n`, from left to right, each kept on its side.

    Args:
        matrix: Columns that are linearly independent.
    """

    def add_column(index: Array, found: Array) -> Array:
        column = matrix[:, index]
        # The columns not yet found are zero, so they take nothing away.
        column = column - found @ (found.T @ column)
        column = column - found @ (found.T @ column)
        return found.at[:, index].set(column / jnp.linalg.norm(column))

    columns: Array = lax.fori_loop(0, matrix.shape[1], add_column, jnp.zeros_like(matrix))
    return columns
