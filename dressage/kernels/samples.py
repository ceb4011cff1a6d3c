"""Minibatches fetched, and random bits drawn, by the kernels."""

from functools import cache
from typing import Any

import jax
import jax.extend.random as jax_random
import jax.numpy as jnp
from jax import Array

from dressage.kernels.calls import DRAW, GATHER, kernel, registered

THREEFRY = "threefry2x32"
"""JAX's default generator."""


def gathers(packed: Array, indices: Array) -> bool:
    """Say whether `gather` can fetch rows of `packed`."""
    kinds = packed.dtype == jnp.float32 and indices.dtype == jnp.int32
    shapes = packed.ndim == 2 and indices.ndim == 1 and min(packed.shape) > 0
    return kinds and shapes and registered()


def gather(packed: Array, indices: Array, first: int) -> tuple[Array, Array]:
    """Fetch rows of an array: a first part of each as a row, the rest in columns.

    Args:
        packed: `[samples, width]` float32.
        indices: `[count]` int32; one outside of `packed` fetches its nearest row.
        first: Numbers of a row in the first part.

    Returns:
        `[count, first]` and `[width - first, count]`.
    """
    count, width = indices.shape[0], packed.shape[1]
    shapes = (count, first), (width - first, count)
    results = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    rows, columns = kernel(GATHER, results)(packed, indices)
    return rows, columns


def swift(key: Array) -> Array:
    """Return a random key that gives the same numbers sooner, where the kernel can.

    JAX's own rounds of Threefry go through memory one after another on a CPU, ten times what they take in
    registers. The key stays as it is where there is no kernel, or where it is of another generator.

    Args:
        key: A JAX random key, or an array of them.
    """
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    same_bits = jax.config.jax_threefry_partitionable  # type: ignore[attr-defined]  # made at run time
    if not typed or str(jax.random.key_impl(key)) != THREEFRY or not same_bits or not registered():
        return key
    swift_key: Array = jax.random.wrap_key_data(jax.random.key_data(key), impl=_implementation())
    return swift_key


def split(key: Array) -> tuple[Array, Array]:
    """Return what `jax.random.split` makes of a key, of the same kind."""
    pair = jax.random.split(swift(key))
    if pair.dtype != key.dtype:
        pair = jax.random.wrap_key_data(jax.random.key_data(pair), impl=jax.random.key_impl(key))
    return pair[0], pair[1]


@cache
def _implementation() -> Any:  # noqa: ANN401 (JAX gives it no name)
    """Return JAX's generator with its bits drawn by the kernel."""
    own: Any = jax_random.threefry_prng_impl
    return jax_random.define_prng_impl(
        key_shape=own.key_shape,
        seed=own.seed,
        split=_split,
        random_bits=_bits,
        fold_in=own.fold_in,
        name="dressage_threefry2x32",
        tag="dfry",
    )


def _split(key: Array, shape: tuple[int, ...]) -> Array:
    return _draw(key, (*shape, 2), apart=True)


def _bits(key: Array, width: int, shape: tuple[int, ...]) -> Array:
    if width != 32:
        bits: Array = jax_random.threefry_prng_impl.random_bits(key, width, shape)
        return bits
    return _draw(key, shape, apart=False)


def _draw(key: Array, shape: tuple[int, ...], *, apart: bool) -> Array:
    result = jax.ShapeDtypeStruct(shape, jnp.uint32)
    drawn: Array = kernel(DRAW, result)(key, apart=apart)
    return drawn
