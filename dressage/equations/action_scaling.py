"""Bounds of continuous actions: checking them, and scaling between [-1, 1] and [low, high]."""

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from dressage.equations.precision import as_float
from dressage.errors import ConfigError

# Environments write "no bound" as float32's largest number (3.4028e38) as often as infinity, and some as
# 3.4e38, which float32 rounds down.
UNBOUNDED = 3.399e38


def scale_action(normalized: ArrayLike, low: ArrayLike, high: ArrayLike) -> Array:
    r"""Map [-1, 1] onto [low, high]: $a = (1-w)\,low + w\,high$ with $w = (x+1)/2$.

    Args:
        normalized: `[..., D]`; values outside [-1, 1] are clipped to the bounds.
        low: `[D]`, finite lower bounds.
        high: `[D]`, finite upper bounds.

    Returns:
        `[..., D]`, inside the bounds always; -1 and 1 give them exactly.
    """
    low, high = as_float(low), as_float(high)
    weight = 0.5 * (as_float(normalized) + 1)
    # As a weighted mean it meets both ends without rounding and cannot overflow where high - low would.
    return jnp.clip((1 - weight) * low + weight * high, low, high)


def unscale_action(action: ArrayLike, low: ArrayLike, high: ArrayLike) -> Array:
    r"""Map [low, high] back onto [-1, 1]: $x = (a - m)/h$ with middle $m$ and half width $h$.

    Args:
        action: `[..., D]`; values outside the bounds come out outside [-1, 1].
        low: `[D]`, finite lower bounds.
        high: `[D]`, finite upper bounds, each above its lower one.

    Returns:
        `[..., D]`.
    """
    low, high = as_float(low), as_float(high)
    middle, half_width = 0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low
    return (as_float(action) - middle) / half_width


def check_bounds(low: ArrayLike, high: ArrayLike, squash: bool) -> None:
    """Refuse bounds that no policy can act within.

    Args:
        low: `[D]`, concrete (not traced); -3.4e38 and below count as unbounded.
        high: `[D]`, concrete (not traced); 3.4e38 and above count as unbounded.
        squash: Whether actions are squashed into the bounds, which takes finite ones; an unsquashed policy
            may have infinite bounds.

    Raises:
        ConfigError: If shapes differ, a bound is NaN, a lower bound is not below its upper one, or a bound is
            infinite and `squash` holds; the text names the dimension.
    """
    lows, highs = np.asarray(low, np.float64), np.asarray(high, np.float64)
    if lows.shape != highs.shape:
        raise ConfigError(f"action bounds differ in shape: low {lows.shape}, high {highs.shape}.")
    for dimension, (least, greatest) in enumerate(zip(lows.ravel(), highs.ravel(), strict=True)):
        where = f"action dimension {dimension} has bounds [{least:g}, {greatest:g}]"
        if np.isnan(least) or np.isnan(greatest):
            raise ConfigError(f"{where}: a bound is NaN.")
        if least >= greatest:
            raise ConfigError(f"{where}: the lower bound must be below the upper one.")
        if squash and not (-UNBOUNDED < least and greatest < UNBOUNDED):
            raise ConfigError(f"{where}: squashing needs finite bounds; bound it or switch squashing off.")
