"""Labels for a predictor of failures: does a cost come within the next steps of the same episode?"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

_Pair = tuple[Array, Array]


def failure_labels(costs: ArrayLike, episode_ends: ArrayLike, horizon: ArrayLike) -> tuple[Array, Array]:
    r"""Label each step by whether a positive cost occurs in steps $t, \ldots, t+H-1$ of its episode.

    Args:
        costs: `[T, ...]`, raw costs.
        episode_ends: `[T, ...]`, bool or 0/1; 1 where an episode ended for any reason.
        horizon: H, steps, >= 0; 0 looks at nothing and labels everything 0.

    Returns:
        Labels, `[T, ...]` float32, 0 or 1; and whether each is known, `[T, ...]` bool. A label is unknown
        where the rollout cut the window short of both its end and the episode's with no cost seen: it is 0
        there and must be masked out.

    Raises:
        ValueError: If the two arrays differ in shape.

    Reference:
        After Achiam et al. 2017, "Constrained Policy Optimization", section 6.3.
    """
    failed, ended = jnp.asarray(costs) > 0, jnp.asarray(episode_ends) != 0
    if failed.shape != ended.shape:
        raise ValueError(
            f"failure_labels needs equal shapes: costs {failed.shape}, episode_ends {ended.shape}."
        )
    never = np.iinfo(np.int32).max - 1  # one may be added without wrapping

    def look_ahead(following: _Pair, step: _Pair) -> tuple[_Pair, _Pair]:
        next_failure, next_cut = following
        failed, ended = step
        beyond = jnp.where(ended, never, jnp.minimum(next_failure + 1, never))
        until_failure = jnp.where(failed, 0, beyond)
        until_cut = jnp.where(ended, never, jnp.minimum(next_cut + 1, never))
        return (until_failure, until_cut), (until_failure, until_cut)

    shape = failed.shape[1:]
    after = jnp.full(shape, never, jnp.int32), jnp.zeros(shape, jnp.int32)
    _, (until_failure, until_cut) = jax.lax.scan(look_ahead, after, (failed, ended), reverse=True)
    labels = until_failure < horizon
    return labels.astype(jnp.float32), labels | (until_cut >= horizon)
