"""The one rule of number types in the equations: at least float32, wider where the caller is wider."""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike


def as_float(values: ArrayLike) -> Array:
    """Return the values as a floating array of at least 32 bits; integers and booleans become float32."""
    array = jnp.asarray(values)
    return array.astype(jnp.promote_types(array.dtype, jnp.float32))
