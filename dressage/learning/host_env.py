"""Environment copies on the host as the host driver sees them: one record a group of agents."""

import abc
import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol, cast

import jax
import numpy as np
from jax import Array

from dressage.envs.adapters.gymnasium import HostVectorEnv
from dressage.learning.records import Observed, Outcome
from dressage.learning.scan_driver import GroupedEnv
from dressage.workers import GroupObservation, GroupStep, WorkerGroup


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
    def parts(self) -> "tuple[HostGroupedEnv, ...]": ...  # noqa: D102 (see Attributes)

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
        return (Observed(_record(np.asarray(self._vector.reset(seed), np.float32))),)

    def step(self, actions: tuple[Any, ...], resting: int = 0) -> tuple[Outcome, ...]:
        """Step every copy; rows whose action an autoreset ignored are not valid."""
        if resting:
            raise ValueError(f"A vector environment steps as a whole, got {resting} copies that should rest.")
        step = self._vector.step(actions[0])
        outcome = Outcome(
            observed=Observed(_record(step.observation)),
            final_features=_record(step.final_observation),
            rewards=_record(step.reward),
            terminated=_record(step.terminated),
            episode_ends=_record(step.terminated | step.truncated),
            episode_returns=_record(step.episode_return),
            episode_lengths=_record(step.episode_length),
            valid=_record(step.valid),
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
        self._sums = [_Sums(len(group.agents), self.copies) for group in workers.layout.groups]

    def reset(self, key: Array) -> tuple[Observed, ...]:
        """Start every copy from a seed of its own, drawn from `key`."""
        return self.reset_to(_seeds(key, self.copies))

    def reset_to(self, seeds: list[int]) -> tuple[Observed, ...]:
        """Start every copy from the seed given for it."""
        self._lengths[:] = 0
        for sums in self._sums:
            sums.restart(np.ones(self.copies, bool))
        return tuple(_seen(observation) for observation in self._workers.reset(seeds))

    @property
    def parts(self) -> tuple[HostGroupedEnv, ...]:
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
        self._lengths[: self.copies - resting] += 1

    def receive(self) -> tuple[Outcome, ...]:
        """Wait for the step that `send` started."""
        step = self._workers.receive()
        outcomes = tuple(
            self._outcome(group, sums.add(group, step.ended), step.ended, shielded=layout.shielded)
            for group, sums, layout in zip(step.groups, self._sums, self._workers.layout.groups, strict=True)
        )
        self._lengths[step.ended] = 0
        return outcomes

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

    def _outcome(
        self, step: GroupStep, episode: tuple[np.ndarray, ...], over: np.ndarray, *, shielded: bool
    ) -> Outcome:
        """Turn one group's records into what the drivers take.

        The last step of an agent that left without a flag is no sample: nobody knows what it led to.
        """
        shape = step.reward.shape
        row = partial(_row, shape[0] == 1)
        return Outcome(
            observed=_seen(step.observation),
            final_features=row(step.final_observation),
            rewards=row(step.reward),
            terminated=row(step.terminated),
            episode_ends=row(step.ended),
            episode_returns=row(episode[0].astype(np.float32)),
            episode_lengths=row(episode[1]),
            valid=row(step.alive_before & ~step.final_observation_missing),
            costs=row(step.cost),
            episode_costs=row(episode[2].astype(np.float32)),
            copy_ends=row(np.broadcast_to(over, shape)),
            copy_lengths=row(np.broadcast_to(self._lengths, shape).copy()),
            intervened=row(step.intervened) if shielded else None,
        )


class JoinedEnv:
    """Parts side by side as one: their copies follow one another."""

    def __init__(self, parts: Sequence[HostManyAgentsEnv]) -> None:
        self._parts = tuple(parts)
        self.copies = sum(part.copies for part in parts)
        self.saves_state = all(part.saves_state for part in parts)
        self._axes = tuple(0 if single else 1 for single in parts[0].singles)

    @property
    def parts(self) -> tuple[HostGroupedEnv, ...]:
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


class _Sums:
    """What each agent of a group had of a copy's whole episode, also if it left before the end: `[A, B]`."""

    def __init__(self, agents: int, copies: int) -> None:
        self._returns = np.zeros((agents, copies))
        self._lengths = np.zeros((agents, copies), np.int32)
        self._costs = np.zeros((agents, copies))

    def add(self, step: GroupStep, over: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return return, length and cost: of the agent's episode, or where a copy ended of the copy's."""
        self._returns += step.reward
        self._lengths += step.alive_before
        self._costs += step.cost
        shown = (
            np.where(over, self._returns, step.episode_return),
            np.where(over, self._lengths, step.episode_length),
            np.where(over, self._costs, step.episode_cost),
        )
        if over.any():
            self.restart(over)
        return shown

    def arrays(self) -> dict[str, np.ndarray]:
        """Return copies of all sums."""
        summed: dict[str, np.ndarray] = {
            "returns": self._returns,
            "lengths": self._lengths,
            "costs": self._costs,
        }
        return {name: array.copy() for name, array in summed.items()}

    def replace(self, arrays: dict[str, np.ndarray]) -> None:
        """Go on from what `arrays` returned."""
        for name, own in (("returns", self._returns), ("lengths", self._lengths), ("costs", self._costs)):
            own[...] = arrays[name]

    def restart(self, copies: np.ndarray) -> None:
        """Begin anew in the copies given, `[B]` bool."""
        self._returns[:, copies] = 0
        self._lengths[:, copies] = 0
        self._costs[:, copies] = 0


def _seeds(key: Array, copies: int) -> list[int]:
    seeds: list[int] = (np.asarray(jax.random.bits(key, (copies,))) >> 1).tolist()
    return seeds


def _seen(observation: GroupObservation) -> Observed:
    row = partial(_row, observation.features.shape[0] == 1)
    mask = observation.action_mask
    return Observed(row(observation.features), None if mask is None else row(mask))


def _row(single: bool, values: np.ndarray) -> Array:
    """Drop the agent axis of a group of one."""
    return _record(values[0] if single else values)


def _record(values: np.ndarray) -> Array:
    """Let a NumPy array stand in a record: the compiled calls that read it take both kinds."""
    return cast("Array", values)
