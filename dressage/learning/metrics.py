"""Metrics of a chunk of updates: summed on the device, turned into named means on the host."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from dressage.learning.proximal import Metrics
from dressage.learning.records import Experience


class ChunkSums(struct.PyTreeNode):
    """Sums over the updates of a chunk, one entry a group; arrays are scalars or `[A]`.

    Attributes:
        updates: `[]` int32, updates summed.
        learning: Sums of each learner's metrics.
        episodes: Number of episodes that ended.
        returns: Sum of their undiscounted returns.
        lengths: Sum of their lengths in steps.
        costs: Sum of their undiscounted costs; zeros where the environment knows no cost.
    """

    updates: Array
    learning: tuple[Metrics, ...]
    episodes: tuple[Array, ...]
    returns: tuple[Array, ...]
    lengths: tuple[Array, ...]
    costs: tuple[Array, ...]

    @classmethod
    def zeros(cls, learning: tuple[Metrics, ...], shapes: tuple[tuple[int, ...], ...]) -> "ChunkSums":
        """Start from nothing: learners' metrics as given, zeros, and counts of episodes in given shapes."""
        empty = tuple(jnp.zeros(shape) for shape in shapes)
        return cls(jnp.int32(0), learning, empty, empty, empty, empty)

    def add(self, learning: tuple[Metrics, ...], rollouts: tuple[Experience, ...]) -> "ChunkSums":
        """Add one update and the episodes that its rollouts finished."""
        sums = zip(*(_episode_sums(rollout) for rollout in rollouts), strict=True)
        after = ChunkSums(jnp.int32(1), learning, *sums)
        total: ChunkSums = jax.tree.map(jnp.add, self, after)
        return total

    def means(self, group: int = 0, *, costs: bool = False) -> dict[str, np.ndarray]:
        """Return the chunk's means by name, on the host; a leading axis of seeds stays.

        `train/episode_return` and `train/episode_length`, and with `costs` `train/episode_cost`, are NaN
        where no episode ended.
        """
        updates = np.asarray(self.updates)
        learning = {f"train/{name}": _divide(total, updates) for name, total in self.learning[group].items()}
        episodes = np.array(self.episodes[group])  # A copy: a view would keep the device's buffer alive.
        if costs:
            learning["train/episode_cost"] = _divide(self.costs[group], episodes)
        return learning | {
            "train/episode_return": _divide(self.returns[group], episodes),
            "train/episode_length": _divide(self.lengths[group], episodes),
            "train/episodes": episodes,
        }


def _episode_sums(rollout: Experience) -> tuple[Array, Array, Array, Array]:
    outcome = rollout.outcome
    ends = outcome.episode_ends if outcome.valid is None else outcome.episode_ends & outcome.valid
    axes = (0, ends.ndim - 1)
    returns = jnp.where(ends, outcome.episode_returns, 0.0).sum(axes)
    lengths = jnp.where(ends, outcome.episode_lengths, 0).sum(axes).astype(jnp.float32)
    costs = jnp.zeros_like(returns)
    if outcome.episode_costs is not None:
        costs = jnp.where(ends, outcome.episode_costs, 0.0).sum(axes)
    return ends.sum(axes).astype(jnp.float32), returns, lengths, costs


def _divide(total: Any, count: np.ndarray) -> np.ndarray:  # noqa: ANN401 (an array of any backend)
    total = np.asarray(total, np.float64)
    count = count.reshape(count.shape + (1,) * (total.ndim - count.ndim))
    quotient: np.ndarray = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    return quotient
