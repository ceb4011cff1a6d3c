"""Parameters as one vector, and the optimiser over it against optax on trees."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dressage.learning.flat_parameters import ADAM_EPSILON, FLAT_ADAM, OPTIMIZER, ravel_parameters, step_adam


@pytest.fixture(scope="module")
def tree():
    generator = np.random.default_rng(0)
    shapes = {"kernel": (3, 5), "square": (2, 2), "bias": (5,), "scale": (), "stack": (2, 3, 2)}
    return {"layer": {name: jnp.asarray(generator.normal(size=s), jnp.float32) for name, s in shapes.items()}}


def gradients(tree, step):
    # Of sizes around Adam's epsilon, so that another epsilon would show.
    return jax.tree.map(lambda leaf: 1e-5 * jnp.sin(10 * leaf + step), tree)


def assert_trees_equal(ours, theirs, **tolerance):
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert mine.shape == other.shape
        assert mine.dtype == other.dtype
        np.testing.assert_allclose(mine, other, **(tolerance or {"rtol": 0}))


def test_the_vector_gives_the_tree_back_bit_for_bit(tree):
    vector, unravel = ravel_parameters(tree)
    assert vector.shape == (3 * 5 + 4 + 5 + 1 + 12,)
    assert_trees_equal(unravel(vector), tree)


def test_every_number_has_a_place_of_its_own(tree):
    vector, unravel = ravel_parameters(tree)
    numbered = unravel(jnp.arange(vector.size, dtype=jnp.float32))
    found = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(numbered)])
    np.testing.assert_array_equal(np.sort(found), np.arange(vector.size))
    np.testing.assert_array_equal(ravel_parameters(numbered)[0], np.arange(vector.size))


def test_matrices_lie_transposed_in_the_vector():
    kernel = jnp.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(ravel_parameters({"kernel": kernel})[0], [0, 3, 1, 4, 2, 5])


def test_the_tree_optimizer_equals_optax_adam_over_several_steps(tree):
    peer = optax.scale_by_adam(eps=ADAM_EPSILON)
    ours, theirs = OPTIMIZER.init(tree), peer.init(tree)
    for step in range(4):
        mine, ours = OPTIMIZER.update(gradients(tree, step), ours)
        other, theirs = peer.update(gradients(tree, step), theirs)
        assert_trees_equal(mine, other, rtol=1e-6)
    assert int(ours.count) == int(theirs.count) == 4
    stepped = optax.apply_updates(tree, jax.tree.map(lambda leaf: -1e-2 * leaf, mine))
    adam = optax.adam(1e-2, eps=1e-5)
    state = adam.init(tree)
    for step in range(4):
        updates, state = adam.update(gradients(tree, step), state)
    assert_trees_equal(stepped, optax.apply_updates(tree, updates), rtol=1e-6)


def test_the_tree_optimizer_keeps_the_flat_ones_state(tree):
    _, state = OPTIMIZER.update(gradients(tree, 0), OPTIMIZER.init(tree))
    flat, _ = ravel_parameters(gradients(tree, 0))
    _, expected = FLAT_ADAM.update(flat, FLAT_ADAM.init(flat))
    assert_trees_equal(state, expected, rtol=1e-6)


def test_a_step_of_adam_equals_optax_and_one_that_is_not_applied_leaves_the_state(tree):
    vector = ravel_parameters(tree)[0]
    ours = theirs = FLAT_ADAM.init(vector)
    for step in range(3):
        gradient = 1e-5 * jnp.sin(10 * vector + step)
        mine, ours = step_adam(gradient, ours, jnp.bool_(True))
        other, theirs = FLAT_ADAM.update(gradient, theirs)
        np.testing.assert_allclose(mine, other, rtol=1e-5)
    _, kept = step_adam(jnp.full_like(vector, jnp.nan), ours, jnp.bool_(False))
    assert_trees_equal(kept, ours)
    assert int(kept.count) == 3
