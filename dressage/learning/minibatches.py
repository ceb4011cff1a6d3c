"""Minibatches: a rollout packed into one array, shuffled anew each epoch, every sample used once an epoch."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dressage.kernels import gather, gathers
from dressage.learning.shuffle import permutations

Tree = TypeVar("Tree")

PART = 8192  # Samples whose activations fit a core's cache; see `learning.values`.
LEAST = 1024  # Fewer samples are not worth a pass of their own.


@dataclass(frozen=True)
class Packing:
    """How the arrays of a batch lie side by side in the columns of one `[samples, columns]` float32 array.

    One gather then fetches a minibatch, instead of one gather an array. Integers below 2**24 survive exactly.

    Attributes:
        structure: The batch's tree structure.
        shapes: Each leaf's shape without its sample axis.
        dtypes: Each leaf's dtype.
    """

    structure: Any
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[Any, ...]

    @classmethod
    def of(cls, batch: Any) -> "Packing":  # noqa: ANN401 (any tree of arrays)
        """Read the layout off a batch whose leaves are `[samples, ...]`."""
        leaves, structure = jax.tree.flatten(batch)
        return cls(structure, tuple(leaf.shape[1:] for leaf in leaves), tuple(leaf.dtype for leaf in leaves))

    def pack(self, batch: Any) -> Array:  # noqa: ANN401
        """Return the batch as `[samples, columns]` float32."""
        leaves = jax.tree.leaves(batch)
        return jnp.concatenate(
            [leaf.reshape(leaf.shape[0], -1).astype(jnp.float32) for leaf in leaves], axis=1
        )

    def fetch(self, packed: Array, rows: Array) -> Any:  # noqa: ANN401
        """Give rows of what `pack` returned back as the batch's own tree, shapes and dtypes.

        Args:
            packed: `[samples, columns]`.
            rows: `[N]` int32, which samples.

        Returns:
            The batch, its leaves `[N, ...]`.
        """
        widths = [int(np.prod(shape)) for shape in self.shapes]
        if len(widths) > 1 and gathers(packed, rows):
            # The first leaf is what networks see, as rows; losses go over columns.
            first, rest = gather(packed, rows, widths[0])
            parts = [first, *(part.T for part in jnp.split(rest, np.cumsum(widths[1:])[:-1]))]
        else:
            parts = [part.T for part in jnp.split(packed[rows].T, np.cumsum(widths)[:-1])]
        leaves = [
            part.reshape(-1, *shape).astype(dtype)
            for part, shape, dtype in zip(parts, self.shapes, self.dtypes, strict=True)
        ]
        return jax.tree.unflatten(self.structure, leaves)


def minibatch_indices(key: Array, samples: int, epochs: int, minibatches: int) -> tuple[Array, Array | None]:
    """Draw the sample indices of every minibatch of every epoch.

    Each epoch is a permutation of all samples, cut into `min(minibatches, samples)` parts whose sizes differ
    by at most one. Shorter parts repeat their last row with weight 0, so that all have one shape.

    Args:
        key: A JAX random key.
        samples: Number of samples in the rollout, at least 1.
        epochs: Passes over the rollout, at least 1.
        minibatches: Requested parts a pass, at least 1.

    Returns:
        Indices `[epochs * parts, size]` int32, and weights `[epochs * parts, size]` float32, or None where no
        row is padding.
    """
    parts = min(minibatches, samples)
    orders = permutations(key, epochs, samples)
    if samples % parts == 0:
        return orders.reshape(epochs * parts, samples // parts), None
    bounds = np.arange(parts + 1) * samples // parts
    size = int(np.diff(bounds).max())
    rows = bounds[:-1, None] + np.arange(size)
    weights = (rows < bounds[1:, None]).astype(np.float32)
    indices = orders[:, np.minimum(rows, bounds[1:, None] - 1)].reshape(epochs * parts, size)
    return indices, jnp.tile(jnp.asarray(weights), (epochs, 1))


def count_parts(rows: int, samples: int = 1) -> int:
    """Return into how many equal parts of at most `PART` samples a minibatch is best cut; 1 leaves it whole.

    Args:
        rows: Its rows.
        samples: Samples of each row: 1, or the length of a sequence.
    """
    least = math.ceil(rows * samples / PART)
    most = rows * samples // LEAST
    return next((parts for parts in range(least, most + 1) if rows % parts == 0), 1)


def average_over_parts(function: Callable[[Any], Tree], rows: Any, parts: int) -> Tree:  # noqa: ANN401
    """Apply a function to equal parts of `rows`, one after another, and average what it returns.

    Args:
        function: Maps arrays `[N / parts, ...]` to any tree of arrays.
        rows: A tree of arrays `[N, ...]`.
        parts: How many; divides `N`.
    """
    if parts == 1:
        return function(rows)
    cut = jax.tree.map(lambda leaf: leaf.reshape(parts, -1, *leaf.shape[1:]), rows)

    def add(total: Tree, part: Any) -> tuple[Tree, None]:  # noqa: ANN401
        return jax.tree.map(jnp.add, total, function(part)), None

    shapes = jax.eval_shape(function, jax.tree.map(lambda leaf: leaf[0], cut))
    nothing: Tree = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    total, _ = lax.scan(add, nothing, cut)
    averaged: Tree = jax.tree.map(lambda leaf: leaf / parts, total)
    return averaged
