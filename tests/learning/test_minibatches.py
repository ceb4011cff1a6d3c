"""Minibatches: every sample once an epoch, parts of nearly one size, and a packing that loses nothing."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from dressage.learning.minibatches import Packing, average_over_parts, count_parts, minibatch_indices


class Mixed(struct.PyTreeNode):
    vector: jax.Array
    matrix: jax.Array
    index: jax.Array
    flag: jax.Array
    pair: tuple[jax.Array, jax.Array]
    absent: jax.Array | None = None


compiled_indices = jax.jit(minibatch_indices, static_argnums=(1, 2, 3))


@cache
def draw(seed, samples, epochs, minibatches):
    indices, weights = compiled_indices(jax.random.key(seed), samples, epochs, minibatches)
    weights = np.ones(indices.shape, np.float32) if weights is None else np.asarray(weights)
    parts = indices.shape[0] // epochs
    shape = (epochs, parts, indices.shape[1])
    return np.asarray(indices).reshape(shape), weights.reshape(shape)


SIZES = [(1, 2, 4), (7, 3, 2), (10, 3, 16), (12, 2, 4), (130, 2, 32)]


@pytest.mark.parametrize(("samples", "epochs", "minibatches"), SIZES)
def test_every_sample_has_weight_one_exactly_once_an_epoch(samples, epochs, minibatches):
    indices, weights = draw(5, samples, epochs, minibatches)
    assert set(np.unique(weights)) <= {0.0, 1.0}
    for epoch in range(epochs):
        used = indices[epoch][weights[epoch] == 1]
        np.testing.assert_array_equal(np.sort(used), np.arange(samples))


@pytest.mark.parametrize(("samples", "epochs", "minibatches"), SIZES)
def test_parts_are_as_many_as_asked_or_as_samples_and_differ_by_at_most_one(samples, epochs, minibatches):
    indices, weights = draw(5, samples, epochs, minibatches)
    sizes = weights.sum(axis=2)
    assert indices.shape[:2] == (epochs, min(samples, minibatches))
    assert sizes.max() - sizes.min() <= 1
    assert sizes.min() >= 1
    assert indices.shape[2] == sizes.max(), "padding beyond one row would be wasted work"


def test_ten_samples_in_four_parts_are_two_threes_and_two_twos():
    _, weights = draw(1, 10, 2, 4)
    assert [sorted(epoch.sum(axis=1)) for epoch in weights] == [[2, 2, 3, 3]] * 2


def test_padding_points_at_a_real_sample():
    indices, weights = draw(1, 10, 2, 4)
    assert weights.min() == 0
    assert indices.min() >= 0
    assert indices.max() == 9


def test_equal_parts_need_no_weights():
    assert compiled_indices(jax.random.key(5), 12, 2, 4)[1] is None


def test_epochs_and_keys_have_orders_of_their_own():
    first, _ = draw(5, 12, 2, 4)
    second, _ = draw(6, 12, 2, 4)
    orders = np.concatenate([first, second]).reshape(4, 12)
    assert len(np.unique(orders, axis=0)) == 4
    assert (orders != np.arange(12)).any(axis=1).all()


@pytest.fixture(scope="module")
def mixed():
    generator = np.random.default_rng(0)
    return Mixed(
        vector=jnp.asarray(generator.normal(size=(6, 3)), jnp.float32),
        matrix=jnp.asarray(generator.normal(size=(6, 2, 2)), jnp.float32),
        index=jnp.array([0, 1, -7, 2**24 - 1, -(2**24) + 1, 3], jnp.int32),
        flag=jnp.array([True, False, True, True, False, False]),
        pair=(jnp.arange(12, dtype=jnp.int32).reshape(6, 2), jnp.array([[True, False]] * 6)),
    )


def test_packing_gives_every_leaf_back_with_its_dtype_and_shape(mixed):
    packing = Packing.of(mixed)
    packed = packing.pack(mixed)
    assert packed.shape == (6, 3 + 4 + 1 + 1 + 2 + 2)
    assert packed.dtype == jnp.float32
    back = packing.fetch(packed, jnp.arange(6))
    assert back.absent is None
    for ours, theirs in zip(jax.tree.leaves(back), jax.tree.leaves(mixed), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)


def test_rows_gathered_from_a_packed_batch_are_those_of_the_batch(mixed):
    packing = Packing.of(mixed)
    rows = jnp.array([4, 0, 4, 2])
    gathered = jax.jit(lambda packed: packing.fetch(packed, rows))(packing.pack(mixed))
    for ours, whole in zip(jax.tree.leaves(gathered), jax.tree.leaves(mixed), strict=True):
        np.testing.assert_array_equal(ours, whole[np.asarray(rows)])


def test_a_batch_of_one_column_survives_packing():
    batch = {"only": jnp.arange(4.0)}
    packing = Packing.of(batch)
    np.testing.assert_array_equal(packing.fetch(packing.pack(batch), jnp.arange(4))["only"], batch["only"])


@pytest.mark.parametrize(
    ("rows", "samples", "parts"),
    [
        (8192, 1, 1),
        (8193, 1, 3),  # 2 does not divide it
        (49152, 1, 6),
        (16384, 1, 2),
        (1024, 16, 2),  # sequences of 16 steps
        (8209, 1, 1),  # a prime: whole
    ],
)
def test_a_large_minibatch_is_cut_into_equal_parts_that_fit_the_cache(rows, samples, parts):
    assert count_parts(rows, samples) == parts
    assert rows % parts == 0


def test_an_average_over_parts_equals_that_of_the_whole():
    rows = {"x": jnp.arange(12.0), "y": jnp.arange(24.0).reshape(12, 2)}
    function = lambda rows: (rows["x"].mean(), (rows["y"] ** 2).mean(0))  # noqa: E731
    whole = function(rows)
    for parts in (1, 3, 4):
        found = jax.jit(lambda rows, parts=parts: average_over_parts(function, rows, parts))(rows)
        for mine, other in zip(found, whole, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-6)
