"""Environment copies on the host as the host driver sees them: one record a group of agents."""

import abc
import itertools
from collections.abc import Sequence
from typing import Any, Protocol

import jax
import numpy as np
from jax import Array

from dressage.envs.adapters.gymnasium import HostVectorEnv
from dressage.learning.host_recording import AgentsRecording, OutcomeRecording, Recording, record, seen
from dressage.learning.records import Observed, Outcome
from dressage.learning.scan_driver import GroupedEnv
from dressage.workers import WorkerGroup
from dressage.workers.history import EpisodeSums


class HostGroupedEnv(Protocol):
    """Environment copies on the host; records are NumPy arrays, one a group.

    Attributes:
        copies: Number of environment copies.
        saves_state: Whether `state` holds all that the copies will do depends on.
        parts: Runs of neighbouring copies that step without waiting for one another; often the whole alone.
    """

    copies: int
    saves_state: bool

    @property
    def parts(self) -> "tuple[HostPart, ...]": ...  # noqa: D102 (see Attributes)

    def reset(self, key: Array) -> tuple[Observed, ...]:
        """Start every copy from seeds derived from `key`."""
        ...

    def step(self, actions: tuple[Any, ...], resting: int = 0) -> tuple[Outcome, ...]:
        """Step every copy but the last `resting`, whose rows are no samples."""
        ...

    def send(self, actions: tuple[Any, ...], resting: int = 0) -> None:
        """Start a step; see `step`."""
        ...

    def receive(self) -> tuple[Outcome, ...]:
        """Wait for the step that `send` started."""
        ...

    def state(self) -> Any:  # noqa: ANN401 (any tree of arrays)
        """Return the copies' state where it can be saved, else an empty tuple."""
        ...

    def set_state(self, state: Any) -> None:  # noqa: ANN401
        """Put back what `state` returned."""
        ...

    def close(self) -> None:
        """Release the environments."""
        ...


class HostPart(HostGroupedEnv, Protocol):
    """Copies that step together."""

    def descriptor(self) -> int | None:
        """Return the file descriptor that becomes readable when a step is done; None where nothing tells."""
        ...

    def record(self, steps: int) -> Recording:
        """Return what keeps the next `steps` steps, in place of `receive`."""
        ...


class _Whole(abc.ABC):
    """What steps as one, in this process: `send` steps."""

    _outcomes: tuple[Outcome, ...]

    @property
    def parts(self) -> tuple[Any, ...]:
        """Itself alone."""
        return (self,)

    def send(self, actions: tuple[Any, ...], resting: int = 0) -> None:
        """Step; there is no one else to work meanwhile."""
        self._outcomes = self.step(actions, resting)

    def receive(self) -> tuple[Outcome, ...]:
        """Return what came of it."""
        return self._outcomes

    def descriptor(self) -> None:
        """Return None: nothing tells, since a step is done when `send` returns."""
        return

    def record(self, steps: int) -> Recording:
        """Return what keeps the next `steps` steps."""
        return OutcomeRecording(self, steps)

    @abc.abstractmethod
    def step(self, actions: tuple[Any, ...], resting: int = 0) -> tuple[Outcome, ...]:
        """Step every copy but the last `resting`."""


class FunctionalHostEnv(_Whole):
    """Functional environments stepped from the host, one compiled call a step."""

    saves_state = True

    def __init__(self, env: GroupedEnv) -> None:
        self.copies = env.copies
        self._reset = jax.jit(env.reset)
        self._step = jax.jit(env.step)
        self._state: Any = ()

    def reset(self, key: Array) -> tuple[Observed, ...]:
        """Start every copy as the compiled driver does."""
        observed: tuple[Observed, ...]
        self._state, observed = self._reset(key)
        return observed

    def step(self, actions: tuple[Any, ...], resting: int = 0) -> tuple[Outcome, ...]:
        """Step every copy."""
        if resting:
            raise ValueError(f"All copies step together here, got {resting} that should rest.")
        outcomes: tuple[Outcome, ...]
        self._state, outcomes = self._step(self._state, actions)
        return outcomes

    def state(self) -> Any:  # noqa: ANN401
        """Return the functional state of all copies."""
        return self._state

    def set_state(self, state: Any) -> None:  # noqa: ANN401
        """Go on from a saved state."""
        self._state = state

    def close(self) -> None:
        """Nothing to release."""


class HostSingleAgentEnv(_Whole):
    """A vector of Gymnasium environments, for one group of one agent."""

    saves_state = False

    def __init__(self, vector: HostVectorEnv) -> None:
        self.copies = vector.num_envs
        self._vector = vector

    def reset(self, key: Array) -> tuple[Observed, ...]:
        """Start every copy from a seed drawn from `key`."""
        seed = int(jax.random.bits(key)) >> 1
        return (Observed(record(np.asarray(self._vector.reset(seed), np.float32))),)

    def step(self, actions: tuple[Any, ...], resting: int = 0) -> tuple[Outcome, ...]:
        """Step every copy; rows whose action an autoreset ignored are not valid."""
        if resting:
            raise ValueError(f"A vector environment steps as a whole, got {resting} copies that should rest.")
        step = self._vector.step(actions[0])
        outcome = Outcome(
            observed=Observed(record(step.observation)),
            final_features=record(step.final_observation),
            rewards=record(step.reward),
            terminated=record(step.terminated),
            episode_ends=record(step.terminated | step.truncated),
            episode_returns=record(step.episode_return),
            episode_lengths=record(step.episode_length),
            valid=record(step.valid),
        )
        return (outcome,)

    def state(self) -> tuple[()]:
        """Gymnasium has no way to save an environment's state."""
        return ()

    def set_state(self, state: Any) -> None:  # noqa: ANN401
        """Nothing to put back."""

    def close(self) -> None:
        """Close the environments."""
        self._vector.close()


def host_many_agents_env(workers: WorkerGroup) -> HostGroupedEnv:
    """Return copies of a `ParallelEnv` as the host driver sees them, a part for each worker process."""
    parts = [HostManyAgentsEnv(part) for part in workers.split()]
    return parts[0] if len(parts) == 1 else JoinedEnv(parts)


class HostManyAgentsEnv:
    """Copies of a `ParallelEnv` stepped by a group of workers; groups of one have no agent axis.

    Attributes:
        copies: Number of environment copies.
        saves_state: Whether `state` holds all that the copies will do depends on.
        singles: Of each group whether it is one agent, whose records have no agent axis.
    """

    def __init__(self, workers: WorkerGroup) -> None:
        self.copies = workers.num_envs
        self.singles = tuple(len(group.agents) == 1 for group in workers.layout.groups)
        self.saves_state = workers.saves_state
        self._workers = workers
        self._lengths = np.zeros(self.copies, np.int32)
        self._sums = [EpisodeSums((len(group.agents), self.copies)) for group in workers.layout.groups]

    def reset(self, key: Array) -> tuple[Observed, ...]:
        """Start every copy from a seed of its own, drawn from `key`."""
        return self.reset_to(_seeds(key, self.copies))

    def reset_to(self, seeds: list[int]) -> tuple[Observed, ...]:
        """Start every copy from the seed given for it."""
        self._lengths[:] = 0
        for sums in self._sums:
            sums.restart()
        return tuple(seen(observation) for observation in self._workers.reset(seeds))

    @property
    def parts(self) -> tuple[HostPart, ...]:
        """Itself alone."""
        return (self,)

    def step(self, actions: tuple[Any, ...], resting: int = 0) -> tuple[Outcome, ...]:
        """Step every copy but the last `resting`."""
        self.send(actions, resting)
        return self.receive()

    def send(self, actions: tuple[Any, ...], resting: int = 0) -> None:
        """Start a step of every copy but the last `resting`."""
        stacked = tuple(
            jax.tree.map(lambda leaf: leaf[None], action) if single else action
            for single, action in zip(self.singles, actions, strict=True)
        )
        self._workers.send(stacked, resting)

    def receive(self) -> tuple[Outcome, ...]:
        """Wait for the step that `send` started."""
        step = self.record(1)
        following = step.receive()
        outcomes = jax.tree.map(lambda leaf: leaf[0], step.outcomes())
        pairs = zip(outcomes, following, strict=True)
        return tuple(outcome.replace(observed=observed) for outcome, observed in pairs)

    def descriptor(self) -> int | None:
        """Return the file descriptor that becomes readable when a step is done; None where nothing tells."""
        return self._workers.descriptor()

    def record(self, steps: int) -> Recording:
        """Return what keeps the next `steps` steps."""
        return AgentsRecording(self._workers, self._sums, self._lengths, steps)

    def state(self) -> Any:  # noqa: ANN401
        """Return the copies' state as arrays; empty where they have no way to save it, as most have."""
        if not self.saves_state:
            return ()
        return {
            "workers": self._workers.save_state(),
            "lengths": self._lengths.copy(),
            "sums": [sums.arrays() for sums in self._sums],
        }

    def set_state(self, state: Any) -> None:  # noqa: ANN401
        """Go on from a saved state."""
        if not self.saves_state:
            return
        self._workers.load_state(state["workers"])
        self._lengths[:] = state["lengths"]
        for sums, arrays in zip(self._sums, state["sums"], strict=True):
            sums.replace(arrays)

    def close(self) -> None:
        """End the environments and whatever they run in."""
        self._workers.close()


class JoinedEnv:
    """Parts side by side as one: their copies follow one another."""

    def __init__(self, parts: Sequence[HostManyAgentsEnv]) -> None:
        self._parts = tuple(parts)
        self.copies = sum(part.copies for part in parts)
        self.saves_state = all(part.saves_state for part in parts)
        self._axes = tuple(0 if single else 1 for single in parts[0].singles)

    @property
    def parts(self) -> tuple[HostPart, ...]:
        """What steps without waiting for the others."""
        return self._parts

    def reset(self, key: Array) -> tuple[Observed, ...]:
        """Start every copy from a seed of its own, the same as in one part."""
        seeds = iter(_seeds(key, self.copies))
        seen = [part.reset_to(list(itertools.islice(seeds, part.copies))) for part in self._parts]
        return join_copies(seen, self._axes)

    def step(self, actions: tuple[Any, ...], resting: int = 0) -> tuple[Outcome, ...]:
        """Step every copy but the last `resting`."""
        self.send(actions, resting)
        return self.receive()

    def send(self, actions: tuple[Any, ...], resting: int = 0) -> None:
        """Start a step in all parts."""
        shares = split_copies(actions, self._axes, [part.copies for part in self._parts])
        rests = rest_of_parts(resting, self._parts)
        for part, share, rest in zip(self._parts, shares, rests, strict=True):
            part.send(share, rest)

    def receive(self) -> tuple[Outcome, ...]:
        """Wait for all parts."""
        return join_copies([part.receive() for part in self._parts], self._axes)

    def state(self) -> Any:  # noqa: ANN401
        """Return the parts' states; empty where they have no way to save them."""
        return [part.state() for part in self._parts] if self.saves_state else ()

    def set_state(self, state: Any) -> None:  # noqa: ANN401
        """Go on from saved states."""
        for part, saved in zip(self._parts, state if self.saves_state else (), strict=self.saves_state):
            part.set_state(saved)

    def close(self) -> None:
        """End the environments and whatever they run in."""
        for part in self._parts:
            part.close()


def rest_of_parts(resting: int, parts: Sequence[HostGroupedEnv]) -> list[int]:
    """Return how many copies of each part rest, where the last `resting` of all do."""
    behind, rests = 0, []
    for part in reversed(parts):
        rests.append(min(max(resting - behind, 0), part.copies))
        behind += part.copies
    return rests[::-1]


def split_copies(
    records: tuple[Any, ...], axes: Sequence[int], sizes: Sequence[int]
) -> list[tuple[Any, ...]]:
    """Cut records, one tree a group, along the axis of copies that each group has."""
    if len(sizes) == 1:
        return [records]
    ends = np.cumsum(sizes).tolist()
    cuts = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    rows = [
        [
            jax.tree.map(lambda leaf, at=(slice(None),) * axis + (cut,): np.asarray(leaf)[at], tree)
            for cut in cuts
        ]
        for tree, axis in zip(records, axes, strict=True)
    ]
    return list(zip(*rows, strict=True))


def join_copies(parts: Sequence[tuple[Any, ...]], axes: Sequence[int]) -> tuple[Any, ...]:
    """Undo `split_copies`."""
    if len(parts) == 1:
        return parts[0]
    groups = zip(zip(*parts, strict=True), axes, strict=True)
    return tuple(
        jax.tree.map(lambda *leaves, axis=axis: np.concatenate(leaves, axis), *trees)
        for trees, axis in groups
    )


def _seeds(key: Array, copies: int) -> list[int]:
    seeds: list[int] = (np.asarray(jax.random.bits(key, (copies,))) >> 1).tolist()
    return seeds
