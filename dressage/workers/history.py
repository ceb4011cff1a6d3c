"""What several steps of all copies brought: kept row by row as they come, counted up once they are over."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dressage.workers.blocks import RESULTS, Blocks, GroupBlocks
from dressage.workers.records import Counts, Flags, Floats

Array = npt.NDArray[Any]


class GroupHistory:
    """`T` steps of one group, as `records.GroupStep` has one of them.

    Args:
        blocks: Where the steps will be read from.
        steps: `T`.

    Attributes:
        observation: `[T, A, B, obs_dim]` float32, to act on next.
        final_observation: `[T, A, B, obs_dim]` float32.
        reward: `[T, A, B]` float32.
        cost: `[T, A, B]` float32.
        terminated: `[T, A, B]` bool.
        truncated: `[T, A, B]` bool.
        alive_before: `[T, A, B]` bool.
        alive: `[T, A, B]` bool.
        missing: `[T, A, B]` bool.
        intervened: `[T, A, B]` bool.
        mask: `[T, A, B, sum(nvec)]` bool; of no columns without masks.
    """

    observation: Floats
    final_observation: Floats
    reward: Floats
    cost: Floats
    terminated: Flags
    truncated: Flags
    alive_before: Flags
    alive: Flags
    missing: Flags
    intervened: Flags
    mask: Flags

    def __init__(self, blocks: GroupBlocks, steps: int) -> None:
        for name in RESULTS:
            block = getattr(blocks, name)
            setattr(self, name, np.empty((steps, *block.shape), block.dtype))

    @property
    def over(self) -> Flags:
        """`[T, A, B]` bool, where nothing of an agent's episode is left to count."""
        return ~self.alive | self.terminated | self.truncated


class History:
    """Up to `T` steps of all copies.

    Args:
        blocks: Where `keep` reads a step from.
        steps: `T`.

    Attributes:
        groups: The steps of each group.
        ended: `[T, B]` bool, whether the copy's episode ended with the step.
        resting: `[T, B]` bool, which copies the step left as they were.
        length: How many steps have been kept.
    """

    def __init__(self, blocks: Blocks, steps: int) -> None:
        self.groups = tuple(GroupHistory(group, steps) for group in blocks.groups)
        self.ended: Flags = np.empty((steps, *blocks.ended.shape), bool)
        self.resting: Flags = np.empty((steps, *blocks.resting.shape), bool)
        self.length = 0
        self._pairs = [(self.ended, blocks.ended), (self.resting, blocks.resting)]
        self._pairs += [
            (getattr(kept, name), getattr(group, name))
            for kept, group in zip(self.groups, blocks.groups, strict=True)
            for name in RESULTS
            if getattr(group, name).size
        ]

    def keep(self) -> None:
        """Copy the step that lies in the blocks."""
        row = self.length
        for kept, block in self._pairs:
            kept[row] = block
        self.length += 1


class EpisodeTotals(NamedTuple):
    """What an episode has brought up to each of `T` steps, that step included.

    Attributes:
        returns: `[T, A, B]` float64, undiscounted rewards.
        lengths: `[T, A, B]` int32, steps.
        costs: `[T, A, B]` float64, costs.
    """

    returns: npt.NDArray[np.float64]
    lengths: Counts
    costs: npt.NDArray[np.float64]


class EpisodeSums:
    """Returns, lengths and costs of open episodes; arrays `[A, B]`."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._returns = np.zeros(shape)
        self._costs = np.zeros(shape)
        self._lengths = np.zeros(shape, np.int32)

    def arrays(self) -> dict[str, Array]:
        """Return copies of all that is summed."""
        summed: dict[str, Array] = {
            "returns": self._returns,
            "costs": self._costs,
            "lengths": self._lengths,
        }
        return {name: array.copy() for name, array in summed.items()}

    def replace(self, arrays: dict[str, Array]) -> None:
        """Go on from what `arrays` returned."""
        for name, own in (("returns", self._returns), ("costs", self._costs), ("lengths", self._lengths)):
            own[...] = arrays[name]

    def restart(self) -> None:
        """Begin anew everywhere."""
        for own in (self._returns, self._costs, self._lengths):
            own.fill(0)

    def add(self, steps: GroupHistory, over: Flags) -> EpisodeTotals:
        """Count steps; where `over`, `[T, A, B]` or what broadcasts to it, an episode ends behind a step."""
        return EpisodeTotals(
            running_sums(self._returns, steps.reward, over),
            running_sums(self._lengths, steps.alive_before, over),
            running_sums(self._costs, steps.cost, over),
        )


def running_sums(open_sums: Array, steps: Array, over: Flags) -> Array:
    """Sum numbers along time, anew behind each end.

    Args:
        open_sums: `[...]`, what was summed before; it is brought up to date.
        steps: `[T, ...]`, what each step adds.
        over: `[T, ...]`, or what broadcasts to it, where a sum ends with its step.

    Returns:
        `[T, ...]` the sums, each step's own number included, in the dtype of `open_sums`.
    """
    over = np.broadcast_to(over, steps.shape)
    sums = steps.astype(open_sums.dtype)
    ends = np.flatnonzero(over.reshape(len(steps), -1).any(1)) + 1
    start = 0
    for stop in sorted({*ends.tolist(), len(steps)}):
        run = sums[start:stop]
        run[0] += open_sums
        np.add.accumulate(run, 0, out=run)
        open_sums[...] = np.where(over[stop - 1], 0, run[-1])
        start = stop
    return sums
