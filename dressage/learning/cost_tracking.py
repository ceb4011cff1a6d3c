"""Episodic returns of a stream of costs, from the true start of each episode, across rollouts."""

from types import ModuleType
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array, lax

Number = Array | np.ndarray | np.generic | float


class RunningEpisode(NamedTuple):
    """The open episode of each stream; arrays of any one shape.

    Attributes:
        running_return: Discounted sum of costs since the episode's start.
        running_mass: Sum of the weights so far.
        discount: Weight of the next cost.
    """

    running_return: Any
    running_mass: Any
    discount: Any


def track_step(
    episode: RunningEpisode,
    cost: Number,
    ended: Number,
    gamma: Number,
    arrays: ModuleType = jnp,
) -> tuple[RunningEpisode, Any, Any]:
    """Add one step's cost; both forms of the tracker are made of this.

    Args:
        episode: The open episode before.
        cost: The step's cost.
        ended: Whether the episode ended with this step.
        gamma: Discount a step.
        arrays: The array library: `jax.numpy` or `numpy`.

    Returns:
        The open episode after, and return and mass of the episode with this step in it.
    """
    total = episode.running_return + episode.discount * cost
    mass = episode.running_mass + episode.discount
    following = RunningEpisode(
        arrays.where(ended, 0.0, total),
        arrays.where(ended, 0.0, mass),
        arrays.where(ended, 1.0, episode.discount * gamma),
    )
    return following, total, mass


class CostTracking(struct.PyTreeNode):
    """Trackers of many streams at once, for compiled code; `B` streams a row of the leading axes.

    Attributes:
        episode: The open episodes, `[..., B]`.
        last_return: `[...]` mean return of the episodes that the last finishing rollout finished.
        last_scale: `[...]` one over the mean mass of the same episodes.
        seen: `[...]` bool, whether any episode has finished yet.
    """

    episode: RunningEpisode
    last_return: Array
    last_scale: Array
    seen: Array

    @classmethod
    def start(cls, shape: tuple[int, ...]) -> "CostTracking":
        """Begin with no cost seen, for streams of shape `[..., B]`."""
        none = RunningEpisode(jnp.zeros(shape), jnp.zeros(shape), jnp.ones(shape))
        outer = shape[:-1]
        return cls(none, jnp.zeros(outer), jnp.ones(outer), jnp.zeros(outer, bool))

    def restart(self) -> "CostTracking":
        """Forget the open episodes, whose environments start anew."""
        none = jnp.zeros_like(self.episode.running_return)
        return self.replace(episode=RunningEpisode(none, none.copy(), jnp.ones_like(none)))

    def update(
        self, costs: Array, episode_ends: Array, gamma: Array | float, valid: Array | None = None
    ) -> tuple["CostTracking", Array]:
        """Add a rollout `[T, ..., B]`; rows that are no samples add nothing.

        An episode that ends in such a row, since its agent vanished, counts with what it had before.

        Returns:
            The trackers after, and the number of episodes finished, `[...]`.
        """
        counted = jnp.ones(costs.shape, bool) if valid is None else valid

        def step(episode: RunningEpisode, row: tuple[Array, Array, Array]) -> tuple[RunningEpisode, Any]:
            cost, ended, real = row
            following, total, mass = track_step(episode, jnp.where(real, cost, 0.0), ended, gamma)
            over = ended & (real | (episode.running_mass > 0))
            total, mass = _where(real, (total, mass), episode[:2])
            kept = _where(real, following, _where(ended, (0.0, 0.0, 1.0), episode))
            return RunningEpisode(*kept), (*_where(over, (total, mass), (0.0, 0.0)), over)

        episode, (returns, masses, ends) = lax.scan(step, self.episode, (costs, episode_ends, counted))
        axes = (0, costs.ndim - 1)
        finished = ends.sum(axes)
        mean_return, mean_mass = returns.sum(axes) / finished, masses.sum(axes) / finished
        fresh = finished > 0
        after = CostTracking(
            episode,
            jnp.where(fresh, mean_return, self.last_return),
            jnp.where(fresh, 1.0 / mean_mass, self.last_scale),
            self.seen | fresh,
        )
        return after, finished


def _where(condition: Array, chosen: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Array, ...]:
    return tuple(jnp.where(condition, a, b) for a, b in zip(chosen, other, strict=True))
