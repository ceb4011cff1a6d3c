"""What all policy distributions share: their interface, and how they are registered as pytrees."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Generic, Self, TypeVar

import jax
from jax import Array

Action = TypeVar("Action")  # Array, or a pair of them; noise has the same structure
Node = TypeVar("Node")


def pytree_of(cls: type[Node]) -> type[Node]:
    """Register a frozen dataclass whose constructor computes: rebuilding a node must not run it again."""
    leaves = [f.name for f in fields(cls) if not f.metadata.get("static", False)]  # type: ignore[arg-type]
    static = [f.name for f in fields(cls) if f.metadata.get("static", False)]  # type: ignore[arg-type]

    def flatten(node: Node) -> tuple[list[tuple[Any, Any]], tuple[Any, ...]]:
        children = [(jax.tree_util.GetAttrKey(name), getattr(node, name)) for name in leaves]
        return children, tuple(getattr(node, name) for name in static)

    def unflatten(aux: tuple[Any, ...], children: Iterable[Any]) -> Node:
        node = object.__new__(cls)
        fill(node, dict(zip((*leaves, *static), (*children, *aux), strict=True)))
        return node

    jax.tree_util.register_pytree_with_keys(cls, flatten, unflatten)
    return cls


def fill(node: object, values: Mapping[str, object]) -> None:
    """Set the fields of a frozen node, in its constructor or when it is rebuilt."""
    for name, value in values.items():
        object.__setattr__(node, name, value)


class Distribution(ABC, Generic[Action]):
    """What every policy distribution answers; the last axis of its parameters is the event, others the batch.

    Log-probabilities, entropies and divergences are in nats and have the batch shape, no extra axis.
    """

    @property
    @abstractmethod
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of log-probabilities and entropies."""

    @abstractmethod
    def draw_noise(self, key: Array, batch_shape: tuple[int, ...]) -> Action:
        """Draw the noise of a whole batch of samples, for `sample_from`.

        Args:
            key: A JAX random key.
            batch_shape: Batch shape of the noise, such as `(T, *batch_shape)` for all steps of a rollout.
        """

    @abstractmethod
    def sample_from(self, noise: Action) -> Action:
        """Turn noise of this batch shape into actions; deterministic.

        Args:
            noise: What `draw_noise` gave, one step of it.
        """

    @abstractmethod
    def mode(self) -> Action:
        """Return the deterministic action."""

    @abstractmethod
    def log_prob(self, action: Any) -> Array:  # noqa: ANN401 (an array or a pair of arrays, NumPy or JAX)
        """Return the log-probability (density) of an action, nats, `[*batch_shape]`.

        Args:
            action: As `sample` gives it.
        """

    @abstractmethod
    def entropy(self) -> Array:
        """Return the entropy, nats, `[*batch_shape]`."""

    @abstractmethod
    def kl(self, other: Self) -> Array:
        """Return KL(self || other), nats, `[*batch_shape]`.

        Args:
            other: A distribution of the same kind and event shape.
        """

    def sample(self, key: Array) -> Action:
        """Draw one action per batch entry.

        Args:
            key: A JAX random key.
        """
        return self.sample_from(self.draw_noise(key, self.batch_shape))
