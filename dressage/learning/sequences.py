"""Rollouts cut into short sequences, which is what a recurrent network learns from."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

LONGEST = 16  # Steps through which gradients flow; longer sequences leave fewer of them to shuffle.


@dataclass(frozen=True)
class Sequences:
    """How `[T, B]` records become `[S, L]`: `L` steps that follow one another, in one copy.

    Attributes:
        length: Steps of a sequence, `L`.
        pieces: Sequences a copy; the last one is filled up where `T` is no multiple of `L`.
        steps: Steps of the rollout, `T`.
        copies: Environment copies, `B`.
    """

    length: int
    pieces: int
    steps: int
    copies: int

    @classmethod
    def of(cls, steps: int, copies: int, parts: int) -> "Sequences":
        """Choose the longest length, up to `LONGEST`, that leaves at least `parts` sequences."""
        wanted = min(parts, steps * copies)
        for length in range(min(LONGEST, steps), 0, -1):
            pieces = -(-steps // length)
            if pieces * copies >= wanted:
                return cls(length, pieces, steps, copies)
        raise AssertionError(f"Sequences of one step are {steps * copies}, and {wanted} are wanted.")

    def arrange(self, records: Any) -> Any:  # noqa: ANN401 (any tree of arrays)
        """Turn `[T, B, ...]` into `[S, L, ...]`, zeros where a sequence is filled up."""
        surplus = self.pieces * self.length - self.steps

        def one(leaf: Array) -> Array:
            padded = jnp.pad(leaf, ((0, surplus), *((0, 0),) * (leaf.ndim - 1)))
            cut = padded.reshape(self.pieces, self.length, self.copies, *leaf.shape[2:])
            return jnp.moveaxis(cut, 2, 1).reshape(-1, self.length, *leaf.shape[2:])

        return jax.tree.map(one, records)

    def first(self, records: Any) -> Any:  # noqa: ANN401
        """Return what stands at the first step of each sequence: `[T, B, ...]` into `[S, ...]`."""
        return jax.tree.map(lambda leaf: leaf[:, 0], self.arrange(records))

    def restarts(self, episode_ends: Array, valid: Array | None) -> Array:
        """Return `[S, L]` bool: whether memory starts anew before a step, since an episode ended before it.

        The first step of a sequence starts from the memory that acted, which is anew already where it had to
        be.
        """
        broken = episode_ends if valid is None else episode_ends | ~valid
        before = jnp.concatenate([jnp.zeros_like(broken[:1]), broken[:-1]])
        arranged: Array = self.arrange(before)
        return arranged.at[:, 0].set(False)
