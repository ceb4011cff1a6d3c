"""Number types, and the excess of the exponential that divergences are made of."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.equations.precision import as_float, exp_excess

NUMBERS = np.concatenate([10.0 ** np.arange(-8, 0), np.linspace(0.1, 20, 200), [0.4999, 0.5, 0.5001]])
NUMBERS = np.concatenate([NUMBERS, -NUMBERS]).astype(np.float32)


@pytest.mark.parametrize(
    ("given_type", "kept_type"),
    [(bool, np.float32), (np.uint8, np.float32), (jnp.bfloat16, np.float32), (np.float32, np.float32)],
)
def test_numbers_become_floats_of_at_least_32_bits(given_type, kept_type):
    assert as_float(jnp.ones(2, given_type)).dtype == kept_type


def test_double_precision_is_kept_where_it_is_switched_on():
    with jax.enable_x64(True):
        assert as_float(np.ones(2)).dtype == np.float64
        assert exp_excess(jnp.asarray(1e-3)) == pytest.approx(np.expm1(1e-3) - 1e-3, rel=1e-9)


def test_the_excess_of_the_exponential_is_accurate_on_both_branches():
    exact = NUMBERS.astype(np.float64)
    # In float64, expm1(x) - x still cancels to 1e-8 relative at x = 1e-8.
    expected = np.where(np.abs(exact) < 1e-4, exact**2 / 2 + exact**3 / 6, np.expm1(exact) - exact)
    np.testing.assert_allclose(jax.jit(exp_excess)(NUMBERS), expected, rtol=2e-6)
    assert exp_excess(jnp.zeros(1)) == 0


def test_the_gradient_of_the_excess_is_that_of_the_exponential_less_one():
    slopes = jax.jit(jax.vmap(jax.grad(exp_excess)))(NUMBERS)
    np.testing.assert_allclose(slopes, np.expm1(NUMBERS.astype(np.float64)), rtol=1e-5, atol=1e-9)


def test_nan_stays_nan():
    assert np.isnan(exp_excess(jnp.float32(jnp.nan)))
