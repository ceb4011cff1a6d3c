"""The arrays that a stepper and its caller share: what goes to the environments and what comes back."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dressage.workers.layout import AgentGroup, ParallelLayout

ALIGNMENT = 64
"""Bytes: a cache line, so that no array starts within another's."""

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class GroupBlocks:
    """The arrays of one group; see `records.GroupStep` for what they mean.

    Attributes:
        actions: One array `[A, B, *shape]` for each part of the action.
        observation: `[A, B, obs_dim]` float32, to act on next.
        final_observation: `[A, B, obs_dim]` float32.
        reward: `[A, B]` float32.
        cost: `[A, B]` float32.
        terminated: `[A, B]` bool.
        truncated: `[A, B]` bool.
        alive_before: `[A, B]` bool.
        alive: `[A, B]` bool.
        missing: `[A, B]` bool, no final observation.
        intervened: `[A, B]` bool, whether a shield did something else than was proposed.
        mask: `[A, B, sum(nvec)]` bool; of no columns without masks.
    """

    actions: tuple[Array, ...]
    observation: Array
    final_observation: Array
    reward: Array
    cost: Array
    terminated: Array
    truncated: Array
    alive_before: Array
    alive: Array
    missing: Array
    intervened: Array
    mask: Array

    def begin_step(self) -> None:
        """Forget the last step; rows that no one writes stay as they are made here."""
        self.alive_before[...] = self.alive
        for array in (
            self.final_observation,
            self.reward,
            self.cost,
            self.terminated,
            self.truncated,
            self.missing,
            self.intervened,
        ):
            array.fill(0)
        if self.mask.shape[-1]:
            self.mask.fill(True)

    def copies(self, start: int, stop: int) -> "GroupBlocks":
        """Return views of the copies `start` to `stop`."""
        cut = slice(start, stop)
        return GroupBlocks(
            tuple(array[:, cut] for array in self.actions),
            *(getattr(self, name)[:, cut] for name in RESULTS),
        )


RESULTS = (
    "observation",
    "final_observation",
    "reward",
    "cost",
    "terminated",
    "truncated",
    "alive_before",
    "alive",
    "missing",
    "intervened",
    "mask",
)
"""What comes back from the environments, in the order of `GroupBlocks`."""


@dataclass(frozen=True)
class Blocks:
    """All arrays of `B` copies.

    Attributes:
        groups: Those of each group.
        ended: `[B]` bool, whether the copy's episode ended with the step.
        seeds: `[B]` int64, what the next reset seeds each copy with.
        resting: `[B]` bool, which copies the next step leaves as they are.
    """

    groups: tuple[GroupBlocks, ...]
    ended: Array
    seeds: Array
    resting: Array

    def copies(self, start: int, stop: int) -> "Blocks":
        """Return views of the copies `start` to `stop`."""
        return Blocks(
            tuple(group.copies(start, stop) for group in self.groups),
            self.ended[start:stop],
            self.seeds[start:stop],
            self.resting[start:stop],
        )


def bytes_needed(layout: ParallelLayout, copies: int) -> int:
    """Return how large a buffer `blocks_over` needs."""
    return sum(_padded(shape, dtype) for shape, dtype in _described(layout, copies))


def blocks_over(layout: ParallelLayout, copies: int, buffer: Any) -> Blocks:  # noqa: ANN401 (any buffer)
    """Lay the arrays out in a writable buffer, all zero or as another process left them."""
    arrays: list[Array] = []
    offset = 0
    for shape, dtype in _described(layout, copies):
        count = math.prod(shape)
        arrays.append(np.frombuffer(buffer, dtype, count, offset).reshape(shape))
        offset += _padded(shape, dtype)
    taken = iter(arrays)
    ended, seeds, resting = next(taken), next(taken), next(taken)
    groups = tuple(
        GroupBlocks(tuple(next(taken) for _ in group.action.parts), *(next(taken) for _ in RESULTS))
        for group in layout.groups
    )
    return Blocks(groups, ended, seeds, resting)


_Description = tuple[tuple[int, ...], "np.dtype[Any]"]


def _described(layout: ParallelLayout, copies: int) -> list[_Description]:
    kinds = (bool, np.int64, bool)
    described: list[_Description] = [((copies,), np.dtype(kind)) for kind in kinds]
    for group in layout.groups:
        described += _described_group(group, (len(group.agents), copies))
    return described


def _described_group(group: AgentGroup, rows: tuple[int, int]) -> list[_Description]:
    number, flag = np.dtype(np.float32), np.dtype(bool)
    observed = (*rows, group.observation.size)
    actions = [((*rows, *part.shape), np.dtype(part.dtype)) for part in group.action.parts]
    return [
        *actions,
        (observed, number),
        (observed, number),
        *([(rows, number)] * 2),
        *([(rows, flag)] * 6),
        ((*rows, group.mask_size), flag),
    ]


def _padded(shape: tuple[int, ...], dtype: "np.dtype[Any]") -> int:
    size = math.prod(shape) * dtype.itemsize
    return -(-size // ALIGNMENT) * ALIGNMENT
