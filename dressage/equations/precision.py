"""The one rule of number types in the equations: at least float32, wider where the caller is wider."""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike


def as_float(values: ArrayLike) -> Array:
    """Return the values as a floating array of at least 32 bits; integers and booleans become float32."""
    array = jnp.asarray(values)
    return array.astype(jnp.promote_types(array.dtype, jnp.float32))


def exp_excess(x: Array) -> Array:
    r"""Return $e^x - 1 - x$ without cancellation, as KL divergences need it.

    In float32 a series replaces `expm1`, which XLA does not vectorise on a CPU: it cost 150 ns a number, a
    third of a PPO minibatch of 256 samples. The seven terms are exact to 1e-6 relative where |x| <= 1/2;
    beyond, nothing cancels.

    Args:
        x: `[...]`, float.

    Returns:
        `[...]`, >= 0.
    """
    if x.dtype != jnp.float32:
        return jnp.expm1(x) - x
    small = jnp.where(jnp.abs(x) < 0.5, x, 0.0)
    series = small / 40320
    for factorial in (5040, 720, 120, 24, 6):
        series = (series + 1 / factorial) * small
    series = series + 0.5
    return jnp.where(jnp.abs(x) < 0.5, small * small * series, jnp.exp(x) - 1 - x)
