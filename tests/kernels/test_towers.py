"""The kernel for towers against plain NumPy in float64, and inside of JAX's transformations."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dressage.kernels import apply_towers, kernels, takes

pytestmark = pytest.mark.skipif(kernels().library is None, reason=f"no kernels here: {kernels().about}")

SLOPES = {"tanh": lambda h: 1 - h**2, "relu": lambda h: (h > 0).astype(float)}
VALUES = {"tanh": np.tanh, "relu": lambda z: np.maximum(z, 0)}


def draw_tower(rng, sizes):
    """Layers with kernels `[in, out]`, as float32."""
    return tuple(
        (
            (rng.normal(size=(before, after)) / np.sqrt(before)).astype(np.float32),
            rng.normal(size=after).astype(np.float32),
        )
        for before, after in zip(sizes, sizes[1:], strict=False)
    )


def oracle(inputs, tower, activation, slopes):
    """Outputs, and the gradients of inputs and layers where the outputs' are `slopes`; float64, by hand."""
    inputs = inputs.astype(float)
    hidden = [inputs]
    for kernel, bias in tower[:-1]:
        hidden.append(VALUES[activation](hidden[-1] @ kernel.astype(float) + bias))
    outputs = hidden[-1] @ tower[-1][0].astype(float) + tower[-1][1]
    gradients = []
    behind = slopes.astype(float)
    for (kernel, _), before in zip(reversed(tower), reversed(hidden), strict=True):
        gradients.append((before.T @ behind, behind.sum(0)))
        behind = behind @ kernel.astype(float).T
        if before is not inputs:
            behind = behind * SLOPES[activation](before)
    return outputs, behind, tuple(reversed(gradients))


def check_against_oracle(inputs, towers, activations, rng):
    outputs, pull = jax.vjp(lambda x, layers: apply_towers(x, layers, activations), inputs, towers)
    slopes = tuple(rng.normal(size=output.shape).astype(np.float32) for output in outputs)
    to_inputs, to_towers = pull(tuple(jnp.asarray(slope) for slope in slopes))
    expected_inputs = 0.0
    for index, tower in enumerate(towers):
        expected, inwards, layers = oracle(inputs, tower, activations[index], slopes[index])
        expected_inputs = expected_inputs + inwards
        np.testing.assert_allclose(outputs[index], expected, rtol=1e-5, atol=1e-5)
        for one, other in zip(jax.tree.leaves(to_towers[index]), jax.tree.leaves(layers), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * max(1.0, np.abs(other).max()))
    np.testing.assert_allclose(to_inputs, expected_inputs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize(
    ("samples", "features", "hidden", "outputs"),
    [
        (1, 1, (1,), (1,)),
        (97, 4, (64, 64), (2, 1)),  # one sample more than a block
        (385, 18, (64, 64), (5, 1)),  # one more than a part
        (1200, 3, (50, 33, 7), (20, 3)),  # no width a whole lane
        (200, 40, (16,), (1, 1, 4)),
        (64, 5, (256, 128), (17,)),
    ],
)
def test_outputs_and_gradients_are_those_of_plain_numpy(samples, features, hidden, outputs, activation):
    rng = np.random.default_rng(samples)
    inputs = rng.normal(size=(samples, features)).astype(np.float32) * 2
    towers = tuple(draw_tower(rng, (features, *hidden, out)) for out in outputs)
    check_against_oracle(inputs, towers, (activation,) * len(towers), rng)


@settings(max_examples=15, deadline=None)
@given(
    samples=st.integers(1, 300),
    features=st.integers(1, 40),
    hidden=st.lists(st.integers(1, 70), min_size=1, max_size=3),
    out=st.integers(1, 20),
    activation=st.sampled_from(["tanh", "relu"]),
)
def test_any_sizes_are_right(samples, features, hidden, out, activation):
    rng = np.random.default_rng([samples, features, out])
    inputs = rng.normal(size=(samples, features)).astype(np.float32)
    check_against_oracle(inputs, (draw_tower(rng, (features, *hidden, out)),), (activation,), rng)


def test_towers_may_have_depths_and_activations_of_their_own():
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(130, 6)).astype(np.float32)
    towers = draw_tower(rng, (6, 20, 3)), draw_tower(rng, (6, 32, 48, 16, 1))
    check_against_oracle(inputs, towers, ("relu", "tanh"), rng)


def test_tanh_is_within_half_a_millionth_everywhere_and_saturates():
    points = np.concatenate(
        [np.linspace(-12, 12, 50_001), [0.0, 1e-30, -1e-30, 8.3, -8.3, 1e30, -1e30, np.inf]]
    )
    points = points.astype(np.float32)[:, None]
    one = np.ones((1, 1), np.float32)
    tower = ((one, np.zeros(1, np.float32)), (one, np.zeros(1, np.float32)))
    found = np.asarray(apply_towers(points, (tower,), ("tanh",))[0])
    np.testing.assert_allclose(found, np.tanh(points.astype(float)), atol=5e-7)
    assert np.abs(found).max() <= 1.0


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_nan_goes_through_and_reaches_the_gradient(activation):
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(100, 3)).astype(np.float32)
    inputs[40, 1] = np.nan
    tower = draw_tower(rng, (3, 20, 2))
    outputs = np.asarray(apply_towers(inputs, (tower,), (activation,))[0])
    assert np.isnan(outputs[40]).all()
    assert np.isfinite(np.delete(outputs, 40, axis=0)).all()
    gradient = jax.grad(lambda layers: apply_towers(inputs, (layers,), (activation,))[0].sum())(tower)
    assert np.isnan(gradient[0][0]).any()


def test_copies_under_vmap_equal_each_alone_bit_for_bit():
    rng = np.random.default_rng(2)
    inputs = rng.normal(size=(3, 500, 7)).astype(np.float32)
    towers = [(draw_tower(rng, (7, 40, 3)), draw_tower(rng, (7, 40, 1))) for _ in range(3)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *towers)

    def slopes(inputs, towers):
        return jax.grad(
            lambda layers: sum((out**2).sum() for out in apply_towers(inputs, layers, ("tanh", "tanh")))
        )(towers)

    together = jax.jit(jax.vmap(slopes))(inputs, stacked)
    shared = jax.jit(jax.vmap(slopes, in_axes=(None, 0)))(inputs[0], stacked)
    for copy in range(3):
        alone = jax.tree.leaves(slopes(inputs[copy], towers[copy]))
        alone_on_shared = jax.tree.leaves(slopes(inputs[0], towers[copy]))
        for one, all_copies in zip(alone, jax.tree.leaves(together), strict=True):
            np.testing.assert_array_equal(one, all_copies[copy])
        for one, all_copies in zip(alone_on_shared, jax.tree.leaves(shared), strict=True):
            np.testing.assert_array_equal(one, all_copies[copy])


PRINT_GRADIENT = """
import os, sys
os.sched_setaffinity(0, [int(core) for core in sys.argv[1:]])
import hashlib, jax, numpy as np
from dressage.kernels import apply_towers
rng = np.random.default_rng(0)
draw = lambda *shape: rng.normal(size=shape).astype(np.float32)
tower = tuple((draw(a, b) / 8, draw(b)) for a, b in ((9, 64), (64, 64), (64, 3)))
inputs = draw(5000, 9)
slopes = jax.grad(lambda t: (apply_towers(inputs, (t, t), ("tanh", "tanh"))[1] ** 2).sum())(tower)
print(hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(slopes))).hexdigest())
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no way here to take cores away")
def test_the_number_of_cores_changes_no_bit():
    cores = sorted(os.sched_getaffinity(0))
    told = set()
    for use in (cores[:1], cores):
        command = [sys.executable, "-c", PRINT_GRADIENT, *map(str, use)]
        told.add(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert len(told) == 1


def test_what_the_kernel_does_not_have_is_left_to_xla():
    rng = np.random.default_rng(3)
    tower = draw_tower(rng, (4, 8, 2))
    inputs = np.zeros((5, 4), np.float32)
    assert takes(inputs, (tower,), ("tanh",))
    assert not takes(inputs, (tower,), ("gelu",))
    assert not takes(inputs, (tower[:1],), ("tanh",))
    assert not takes(inputs[:0], (tower,), ("tanh",))
    assert not takes(inputs, (draw_tower(rng, (4, 0, 2)),), ("tanh",))
    half = jax.tree.map(lambda leaf: leaf.astype(np.float16), tower)
    assert not takes(inputs.astype(np.float16), (half,), ("tanh",))
