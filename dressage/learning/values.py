"""The critic over a whole rollout: once for what was acted on, and only where needed for what followed."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

from dressage.learning.forward import Inputs
from dressage.learning.records import Outcome

Critic = Callable[[Inputs], Array]

ROWS = 8192  # Samples a pass: hidden layers of 64 units then fit a core's cache (4 times as fast at 262,144).

SPARSE = 8  # Up to one cut in so many steps of a copy, a round for each is cheaper than the critic over all.


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
    episode was cut: once or a few times a copy in most rollouts.

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
    most, few = cut.sum(axis=0).max(), cut.shape[0] // SPARSE

    def one_round(_: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        """Take in the first cut of every copy that has one left."""
        following, left = carry
        steps, copies = jnp.argmax(left, axis=0), jnp.arange(left.shape[1])
        ends = critic(jax.tree.map(lambda leaf: leaf[steps, copies], finals))
        found = jnp.where(left.any(axis=0), ends, following[steps, copies])
        return following.at[steps, copies].set(found), left.at[steps, copies].set(False)

    following: Array = lax.cond(
        most > few,
        lambda: rollout_values(critic, finals),
        # The bound is for `vmap`, under which both ways are gone.
        lambda: lax.fori_loop(0, jnp.minimum(most, few), one_round, (shifted, cut))[0],
    )
    return following
