"""Minibatches and random bits by the kernels: the same numbers that NumPy and JAX give."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.kernels import gather, gathers, kernels, split, swift

pytestmark = pytest.mark.skipif(kernels().library is None, reason=f"no kernels here: {kernels().about}")


@pytest.mark.parametrize(
    ("samples", "width", "first", "count"), [(7, 3, 2, 5), (3000, 25, 18, 2500), (4, 1, 1, 9)]
)
def test_rows_are_fetched_as_indexing_does(samples, width, first, count):
    rng = np.random.default_rng(samples)
    packed = rng.normal(size=(samples, width)).astype(np.float32)
    indices = rng.integers(0, samples, count).astype(np.int32)
    assert gathers(jnp.asarray(packed), jnp.asarray(indices))
    rows, columns = jax.jit(gather, static_argnums=2)(packed, indices, first)
    np.testing.assert_array_equal(rows, packed[indices, :first])
    np.testing.assert_array_equal(columns, packed[indices, first:].T)


def test_copies_fetch_their_own_rows():
    rng = np.random.default_rng(0)
    packed = rng.normal(size=(3, 50, 6)).astype(np.float32)
    indices = rng.integers(0, 50, (3, 20)).astype(np.int32)
    rows, columns = jax.vmap(lambda one, chosen: gather(one, chosen, 4))(packed, indices)
    for copy in range(3):
        np.testing.assert_array_equal(rows[copy], packed[copy][indices[copy], :4])
        np.testing.assert_array_equal(columns[copy], packed[copy][indices[copy], 4:].T)


def test_an_index_outside_fetches_the_nearest_row():
    packed = np.arange(6, dtype=np.float32).reshape(3, 2)
    rows, _ = gather(packed, np.array([-5, 9], np.int32), 2)
    np.testing.assert_array_equal(rows, packed[[0, 2]])


@pytest.mark.parametrize(
    "draw",
    [
        lambda key: jax.random.bits(key, (5, 7)),
        lambda key: jax.random.bits(key, ()),
        lambda key: jax.random.bits(key, (9,), jnp.uint8),
        lambda key: jax.random.gumbel(key, (3, 7001, 5)),
        lambda key: jax.random.normal(key, (33,)),
        lambda key: jax.random.key_data(jax.random.split(key, (2, 3))),
        lambda key: jax.random.uniform(jax.random.split(key)[1], (3,)),
        lambda key: jax.random.uniform(jax.random.fold_in(key, 4), (3,)),
        lambda key: jax.vmap(lambda one: jax.random.normal(one, (11,)))(jax.random.split(key, 4)),
    ],
)
def test_a_swift_key_draws_what_jax_draws(draw):
    key = jax.random.key(7)
    assert swift(key).dtype != key.dtype
    np.testing.assert_array_equal(jax.jit(draw)(swift(key)), draw(key))


def test_a_split_is_jax_s_and_of_the_key_s_own_kind():
    keys = jax.random.split(jax.random.key(3), 5)
    right = jax.vmap(jax.random.split)(keys)
    first, second = jax.jit(jax.vmap(split))(keys)
    assert first.dtype == keys.dtype
    np.testing.assert_array_equal(jax.random.key_data(first), jax.random.key_data(right[:, 0]))
    np.testing.assert_array_equal(jax.random.key_data(second), jax.random.key_data(right[:, 1]))


def test_keys_of_another_generator_stay_as_they_are():
    other = jax.random.key(0, impl="rbg")
    assert swift(other) is other
    raw = jax.random.PRNGKey(0)
    assert swift(raw) is raw
    np.testing.assert_array_equal(jnp.stack(split(raw)), jax.random.split(raw))
