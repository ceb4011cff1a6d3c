"""Batches: the samples that losses are taken over, which of them count, and means over those."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array

from dressage.networks import Memory


class Batch(struct.PyTreeNode):
    """Samples as the losses take them: all `[N, ...]`, or `[S, L, ...]` sequences of a recurrent network.

    `memory` is `[S, units]`, what the network remembers before each sequence.
    """

    features: Array
    action_mask: Array | None
    actions: Any
    log_probs: Array
    advantages: Array
    returns: Array
    values: Array
    valid: Array | None
    memory: Memory | None = None
    restarts: Array | None = None


def blank_invalid(batch: Batch) -> Batch:
    """Put zeros where no sample stands: a weight of 0 keeps NaN out of a loss, not out of its gradient."""
    if batch.valid is None:
        return batch
    valid = batch.valid

    def blank(leaf: Array) -> Array:
        kept = valid.reshape(*valid.shape, *(1,) * (leaf.ndim - valid.ndim))
        return jnp.where(kept, leaf, jnp.zeros_like(leaf))

    blanked: Batch = jax.tree.map(blank, batch)
    return blanked


def flat_samples(batch: Batch) -> Batch:
    """Turn sequences `[S, L, ...]` into samples, when the network has seen them in order."""
    samples = batch.replace(features=None, memory=None, restarts=None)
    flat: Batch = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), samples)
    return flat


def sample_weights(valid: Array | None, padding: Array | None) -> Array | None:
    """Weigh rows by whether they are samples; `[N]`, or `[S * L]` for `valid` `[S, L]`."""
    if valid is None:
        return padding
    weights = valid.astype(jnp.float32)
    if padding is None:
        return weights.ravel()
    return (weights * padding.reshape(-1, *(1,) * (weights.ndim - 1))).ravel()


def any_sample(valid: Array | None, row: tuple[Array, Array | None]) -> Array | None:
    """Whether a minibatch holds a sample at all; None where every row is one."""
    weights = None if valid is None else sample_weights(valid[row[0]], row[1])
    return None if weights is None else (weights > 0).any()


def share_of_part(valid: Array | None, row: tuple[Array, Array | None], parts: int) -> Array | None:
    """Return what a part's sums are divided by so that the parts' average is the minibatch's mean.

    None where a part's own mean does: in a minibatch that is whole, or whose rows all are samples.
    """
    weights = sample_weights(None if valid is None else valid[row[0]], row[1])
    return None if weights is None or parts == 1 else jnp.maximum(weights.sum(), 1.0) / parts


def mean(values: Array, weights: Array | None, axis: int | None = None, count: Array | None = None) -> Array:
    """Mean over samples; rows of weight 0 are selected away, so that what stands in them cannot matter."""
    if weights is None:
        return values.mean(axis)
    total = jnp.where(weights > 0, values, 0.0).sum(axis)
    return total / (jnp.maximum(weights.sum(), 1.0) if count is None else count)


def explained_variance(batch: Batch) -> Array:
    """Share of the returns' variance that the critic foresaw: 1 is perfect, 0 no better than a constant."""
    weights = None if batch.valid is None else batch.valid.astype(jnp.float32)
    centre = mean(batch.returns, weights)
    error = batch.returns - batch.values
    spread = mean((batch.returns - centre) ** 2, weights)
    residual = mean((error - mean(error, weights)) ** 2, weights)
    return jnp.where(spread > 0, 1.0 - residual / jnp.maximum(spread, 1e-12), 0.0)
