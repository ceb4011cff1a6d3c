"""Traced functions evaluated by NumPy, against JAX itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from dressage.learning.numpy_program import MOST, HostCall, NumpyProgram

ROWS = np.array([[-2.5, -0.5, 0.25], [0.0, 1.5, 3.0]], np.float32)

FUNCTIONS = {
    "arithmetic": lambda w, x: (x + w, x - w, x * w, x / (w + 4), -x, abs(x), x**2, x**3, jnp.square(x)),
    "order": lambda w, x: (jnp.maximum(x, w), jnp.minimum(x, w), jnp.clip(x, -1, 1), lax.clamp(-1.0, x, w)),
    "smooth": lambda w, x: (jnp.tanh(x), jnp.exp(x), jnp.expm1(x), jax.nn.sigmoid(x), jax.nn.softplus(x)),
    "roots": lambda w, x: (jnp.sqrt(abs(x)), lax.rsqrt(abs(x) + 1), jnp.log(abs(x) + 1), jnp.log1p(abs(x))),
    "comparisons": lambda w, x: (x < w, x <= w, x > w, x >= w, x == w, x != w, ~(x < w) & (w < 1) | (x > 2)),
    "choices": lambda w, x: (jnp.where(x > w, x, w), lax.select_n(jnp.int32(x > 0) * 2, x, w, -x)),
    "finite": lambda w, x: jnp.isfinite(x / (x - x[0, 0])),
    "shapes": lambda w, x: (
        x.T,
        x.reshape(3, 2),
        x[:, None],
        x[1:, ::2],
        jnp.concatenate([x, w], 1),
        x[:, 0],
    ),
    "parts": lambda w, x: (*jnp.split(x, [1], axis=1), jnp.stack([x, w], -1)),
    "broadcast": lambda w, x: jnp.broadcast_to(x[:, 0], (3, 2)),
    "reductions": lambda w, x: (x.sum(1), x.max(0), x.min(), (x > 0).any(1), (x > 0).all(0), x.argmax(-1)),
    "types": lambda w, x: (x.astype(jnp.int32), (x > 0).astype(jnp.float32), jnp.float32(1.5) * x),
    "softmax": lambda w, x: jax.nn.log_softmax(x),
    "activations": lambda w, x: (jax.nn.relu(x), jax.nn.elu(x), jax.nn.silu(x), jax.nn.gelu(x)),
    "products": lambda w, x: (x @ w.T, jnp.einsum("ij,kj->ki", x, w), jnp.outer(x[0], w[1]), x[0] @ w[1]),
    "batched": lambda w, x: jnp.einsum("bij,bkj->bik", jnp.stack([x, w, x]), jnp.stack([w, x, x])),
    "calls": lambda w, x: jax.jit(lambda a: lax.stop_gradient(jnp.tanh(a)))(x) + jax.checkpoint(jnp.exp)(w),
    "constants": lambda w, x: x * np.float32(2) + np.arange(3, dtype=np.float32) + w[0],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_operation_equals_jax(name):
    known, given = jnp.asarray(ROWS[::-1].copy()), ROWS
    program = NumpyProgram(FUNCTIONS[name], known, given)
    found = program.bind(known)(given)
    right = FUNCTIONS[name](known, jnp.asarray(given))
    assert jax.tree.structure(found) == jax.tree.structure(right)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(right), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=2e-7)


def test_what_depends_on_the_known_alone_is_computed_once():
    known, given = jnp.ones((4, 4)), np.ones((2, 4), np.float32)
    program = NumpyProgram(lambda w, x: x @ jnp.tanh(w.T), known, given)
    steps = (len(program._before), len(program._after))
    assert steps == (2, 1)  # w.T and tanh; then the product: both factors lie as matmul takes them
    call = program.bind(known)
    np.testing.assert_allclose(call(given), np.full((2, 4), 4 * np.tanh(1)), rtol=1e-6)


def test_results_without_use_are_not_computed():
    program = NumpyProgram(lambda w, x: (jnp.exp(x), x + 1)[1], (), np.ones(2, np.float32))
    assert len(program._after) == 1


def test_the_size_is_counted_in_operations():
    program = NumpyProgram(lambda w, x: x @ w, jnp.ones((5, 7)), np.ones((3, 5), np.float32))
    assert program.flops == 2 * 3 * 5 * 7


def test_large_products_are_compiled():
    side = int((MOST / 2) ** (1 / 3)) + 1
    w, x = jnp.ones((side, side)), np.ones((side, side), np.float32)
    assert NumpyProgram.small(lambda w, x: x @ w, w, x) is None
    found = HostCall(lambda w, x: x @ w, None).bind(w, x)(x)
    assert isinstance(found, jax.Array)
    np.testing.assert_allclose(found, np.full((side, side), side))


@pytest.mark.parametrize(
    "function",
    [lambda w, x: jnp.sort(x), lambda w, x: jnp.int32(x) // 2, lambda w, x: lax.div(jnp.int32(x), 2)],
    ids=["sort", "floor", "whole numbers"],
)
def test_operations_without_a_counterpart_are_compiled(function):
    x = np.array([3.0, -5.0, 2.0], np.float32)
    assert NumpyProgram.small(function, (), x) is None
    np.testing.assert_array_equal(HostCall(function, None).bind((), x)(x), function((), jnp.asarray(x)))


def test_small_calls_compile_nothing_and_follow_what_is_known():
    call = HostCall(lambda w, x: jnp.tanh(x @ w), None)
    x = np.ones((2, 3), np.float32)
    for scale in (1.0, 0.5):
        found = call.bind(scale * jnp.ones((3, 3)), x)(x)
        assert isinstance(found, np.ndarray)
        np.testing.assert_allclose(found, np.full((2, 3), np.tanh(3 * scale)), rtol=1e-6)
    assert call._compiled._cache_size() == 0


def test_another_shape_is_traced_anew():
    call = HostCall(lambda w, x: x * w, None)
    for rows in (1, 4):
        x = np.ones((rows, 3), np.float32)
        assert call.bind(jnp.float32(2), x)(x).shape == (rows, 3)


def test_overflow_warns_no_more_than_jax():
    large = np.array([200.0], np.float32)
    assert NumpyProgram(lambda w, x: jnp.exp(x), (), large).bind(())(large) == np.inf
