"""Rollouts cut into short sequences, which is what a recurrent network learns from."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
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
        kept: The sequences that hold a step that was made, out of `pieces * copies`.
    """

    length: int
    pieces: int
    steps: int
    copies: int
    kept: tuple[int, ...]

    @classmethod
    def of(cls, steps: int, copies: int, parts: int, rows: np.ndarray | None = None) -> "Sequences":
        """Choose the longest length, up to `LONGEST`, that leaves at least `parts` sequences of a size.

        Args:
            steps: Steps of the rollout.
            copies: Environment copies.
            parts: Requested minibatches a pass; there are never more than steps that were made.
            rows: Which of the `T * B` rows are steps that were made; None for all of them.
        """
        made = np.zeros(steps * copies, bool)
        made[slice(None) if rows is None else rows] = True
        wanted = min(parts, int(made.sum()))
        for longest in range(min(LONGEST, steps), 0, -1):
            pieces = -(-steps // longest)
            length = -(
                -steps // pieces
            )  # As many pieces, but the last of them not much shorter than the rest.
            padded = np.pad(made.reshape(steps, copies), ((0, pieces * length - steps), (0, 0)))
            held = padded.reshape(pieces, length, copies).any(1)
            if held.sum() >= wanted:
                kept = tuple(np.flatnonzero(held).tolist())
                return cls(length, pieces, steps, copies, kept)
        raise AssertionError(f"Sequences of one step are {made.sum()}, and {wanted} are wanted.")

    def arrange(self, records: Any) -> Any:  # noqa: ANN401 (any tree of arrays)
        """Turn `[T, B, ...]` into `[S, L, ...]`, zeros where a sequence is filled up."""
        surplus = self.pieces * self.length - self.steps
        everything = len(self.kept) == self.pieces * self.copies

        def one(leaf: Array) -> Array:
            padded = jnp.pad(leaf, ((0, surplus), *((0, 0),) * (leaf.ndim - 1)))
            cut = padded.reshape(self.pieces, self.length, self.copies, *leaf.shape[2:])
            rows = jnp.moveaxis(cut, 2, 1).reshape(-1, self.length, *leaf.shape[2:])
            return rows if everything else rows[np.array(self.kept)]

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
