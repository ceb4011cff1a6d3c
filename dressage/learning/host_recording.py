"""What the steps of a rollout on the host brought: kept as it comes, made into records once it is over.

Between two steps environments wait, so that nothing is done there that can be done behind the last.
"""

from collections.abc import Sequence
from typing import Any, Protocol, cast

import jax
import numpy as np
from jax import Array

from dressage.learning.records import Observed, Outcome
from dressage.learning.scan_driver import broken_off
from dressage.workers import GroupObservation, WorkerGroup
from dressage.workers.history import EpisodeSums, EpisodeTotals, GroupHistory, running_sums


class Recording(Protocol):
    """The steps of some copies, from the first that is received on."""

    def receive(self) -> tuple[Observed, ...]:
        """Wait for the step that was last sent; returns what each group sees next."""
        ...

    def broken_off(self, group: int) -> Array:
        """Return where the step last received left nothing to remember, `[..., B]` bool."""
        ...

    def outcomes(self) -> tuple[Outcome, ...]:
        """Return what the steps brought each group, `[T, ...]`, less what is seen next; to be asked once."""
        ...


class Receives(Protocol):
    """What steps as a whole and says at once what came of it."""

    def receive(self) -> tuple[Outcome, ...]:
        """Wait for the step that was last sent."""
        ...


class Rows:
    """Trees of arrays, one a step, laid side by side as they come.

    Args:
        steps: `T`, how many will come.
    """

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._kept: list[np.ndarray] = []
        self._structure: Any = None
        self._length = 0

    def append(self, tree: Any) -> None:  # noqa: ANN401
        """Copy the tree of one step; all are of the same structure, shapes and dtypes."""
        leaves, structure = jax.tree.flatten(tree)
        if self._structure is None:
            self._structure = structure
            arrays = map(np.asarray, leaves)
            self._kept = [np.empty((self._steps, *array.shape), array.dtype) for array in arrays]
        for kept, leaf in zip(self._kept, leaves, strict=True):
            kept[self._length] = leaf
        self._length += 1

    def tree(self) -> Any:  # noqa: ANN401
        """Return the steps so far as one tree, `[T, ...]`."""
        return jax.tree.unflatten(self._structure, [kept[: self._length] for kept in self._kept])


class OutcomeRecording:
    """A `Recording` of an environment that gives an outcome a step."""

    def __init__(self, env: Receives, steps: int) -> None:
        self._env = env
        self._rows = Rows(steps)
        self._last: tuple[Outcome, ...] = ()

    def receive(self) -> tuple[Observed, ...]:
        """Wait for the step that was last sent; returns what each group sees next."""
        self._last = self._env.receive()
        self._rows.append(tuple(outcome.replace(observed=None, info=None) for outcome in self._last))
        return tuple(outcome.observed for outcome in self._last)

    def broken_off(self, group: int) -> Array:
        """Return where the step last received left nothing to remember, `[..., B]` bool."""
        return broken_off(self._last[group])

    def outcomes(self) -> tuple[Outcome, ...]:
        """Return what the steps brought each group, `[T, ...]`."""
        outcomes: tuple[Outcome, ...] = self._rows.tree()
        return outcomes


class AgentsRecording:
    """A `Recording` of copies of a `ParallelEnv`; groups of one have no agent axis.

    Args:
        workers: Who steps the copies.
        sums: Of each group, what each agent had of a copy's whole episode, also if it left before the end.
        lengths: `[B]` int32, steps of the copies' open episodes; like `sums` brought up to date at the end.
        steps: How many steps will be received.
    """

    def __init__(
        self, workers: WorkerGroup, sums: Sequence[EpisodeSums], lengths: np.ndarray, steps: int
    ) -> None:
        self._workers = workers
        self._history = workers.history(steps)
        self._sums = sums
        self._lengths = lengths

    def receive(self) -> tuple[Observed, ...]:
        """Wait for the step that was last sent; returns what each group sees next."""
        row = self._history.length
        self._workers.receive_into(self._history)
        return tuple(
            observed(steps.observation[row], steps.mask[row] if steps.mask.shape[-1] else None)
            for steps in self._history.groups
        )

    def broken_off(self, group: int) -> Array:
        """Return where the step last received left nothing to remember, `[..., B]` bool."""
        steps, row = self._history.groups[group], self._history.length - 1
        there = steps.alive_before[row] & ~steps.missing[row]
        return _row(steps.terminated[row] | steps.truncated[row] | ~there)

    def outcomes(self) -> tuple[Outcome, ...]:
        """Return what the steps brought each group, `[T, ...]`."""
        ended = self._history.ended
        lengths = running_sums(self._lengths, ~self._history.resting, ended)
        rows = zip(
            self._history.groups,
            self._workers.count(self._history),
            self._sums,
            self._workers.layout.groups,
            strict=True,
        )
        return tuple(
            _outcome(steps, _shown(steps, agents, sums, ended), ended, lengths, shielded=layout.shielded)
            for steps, agents, sums, layout in rows
        )


def seen(observation: GroupObservation) -> Observed:
    """Return what one group sees, without an agent axis where it is a group of one."""
    return observed(observation.features, observation.action_mask)


def observed(features: np.ndarray, mask: np.ndarray | None) -> Observed:
    """Return what one group sees of `[A, B, ...]`, without an agent axis where it is a group of one."""
    return Observed(_row(features), None if mask is None else _row(mask))


def record(values: np.ndarray) -> Array:
    """Let a NumPy array stand in a record: the compiled calls that read it take both kinds."""
    return cast("Array", values)


def _shown(steps: GroupHistory, agents: EpisodeTotals, sums: EpisodeSums, ended: np.ndarray) -> EpisodeTotals:
    """Return totals of the agent's episode, or where a copy ended those of the copy's."""
    over = ended[:, None]
    copies = sums.add(steps, over)
    return EpisodeTotals(
        np.where(over, copies.returns, agents.returns),
        np.where(over, copies.lengths, agents.lengths),
        np.where(over, copies.costs, agents.costs),
    )


def _outcome(
    steps: GroupHistory, totals: EpisodeTotals, ended: np.ndarray, lengths: np.ndarray, *, shielded: bool
) -> Outcome:
    """Turn the steps of one group into what the drivers take.

    The last step of an agent that left without a flag is no sample: nobody knows what it led to.
    """
    agents = steps.reward.shape[1]

    def row(values: np.ndarray) -> Array:
        return record(values[:, 0] if agents == 1 else values)

    return Outcome(
        observed=None,  # type: ignore[arg-type]  # The next row holds it.
        final_features=row(steps.final_observation),
        rewards=row(steps.reward),
        terminated=row(steps.terminated),
        episode_ends=row(steps.terminated | steps.truncated),
        episode_returns=row(totals.returns.astype(np.float32)),
        episode_lengths=row(totals.lengths),
        valid=row(steps.alive_before & ~steps.missing),
        costs=row(steps.cost),
        episode_costs=row(totals.costs.astype(np.float32)),
        copy_ends=row(np.repeat(ended[:, None], agents, 1)),
        copy_lengths=row(np.repeat(lengths[:, None], agents, 1)),
        intervened=row(steps.intervened) if shielded else None,
    )


def _row(values: np.ndarray) -> Array:
    """Drop the agent axis of a group of one."""
    return record(values[0] if values.shape[0] == 1 else values)
