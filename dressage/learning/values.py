"""The critic over a whole rollout: once for what was acted on, and only where needed for what followed."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

from dressage.learning.forward import Inputs
from dressage.learning.records import Outcome

Critic = Callable[[Inputs], Array]

ROWS = 8192  # Samples a pass: hidden layers of 64 units then fit a core's cache (4 times as fast at 262,144).


def rollout_values(critic: Critic, inputs: Inputs) -> Array:
    """Apply a critic to inputs of `[T, B, ...]` in parts that stay in the cache.

    Returns:
        `[T, B]`.
    """
    steps, copies = jax.tree.leaves(inputs)[0].shape[:2]
    rows = max(1, ROWS // copies)
    if steps <= rows:
        return critic(inputs)
    whole = steps - steps % rows
    cut = jax.tree.map(lambda leaf: leaf[:whole].reshape(-1, rows, *leaf.shape[1:]), inputs)
    parts = lax.map(critic, cut).reshape(whole, copies)
    rest = jax.tree.map(lambda leaf: leaf[whole:], inputs)
    return parts if whole == steps else jnp.concatenate([parts, critic(rest)])


def following_values(critic: Critic, values: Array, finals: Inputs, outcome: Outcome) -> Array:
    """Return the value of what each step really led to.

    Inside an episode that is the value of the next row. A critic is needed only for the last row and where an
    episode was cut: at most once a copy in most rollouts, since a time limit is seldom shorter than half of
    one.

    Args:
        critic: Maps inputs `[..., *]` to values `[...]`.
        values: `[T, B]` of the observations acted on.
        finals: `[T, B, *]`, the critic's inputs for what followed, before any reset.
        outcome: The rollout's flags.

    Returns:
        `[T, B]`; arbitrary where the step terminated, since nothing is bootstrapped there.
    """
    shifted = jnp.concatenate([values[1:], critic(jax.tree.map(lambda leaf: leaf[-1:], finals))])
    cut = (outcome.episode_ends & ~outcome.terminated).at[-1].set(False)

    def where_cut_once(_: None) -> Array:
        steps, copies = jnp.argmax(cut, axis=0), jnp.arange(cut.shape[1])
        ends = critic(jax.tree.map(lambda leaf: leaf[steps, copies], finals))
        return shifted.at[steps, copies].set(jnp.where(cut.any(axis=0), ends, shifted[steps, copies]))

    branches = (lambda _: shifted, where_cut_once, lambda _: rollout_values(critic, finals))
    following: Array = lax.switch(jnp.minimum(cut.sum(axis=0).max(), 2), branches, None)
    return following
