"""Host environments stepped by Ray actors, behind the same interface as workers of this machine.

A call to an actor costs most of a millisecond, so this is for environments whose step costs many: slow
simulators, or machines that have them. Elsewhere `dressage.workers.make_workers` is faster.
"""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from dressage.config import whole_number
from dressage.errors import ConfigError
from dressage.runtime.ray_cluster import LOCAL, Cluster, outcome
from dressage.workers.blocks import RESULTS, Blocks, blocks_over, bytes_needed
from dressage.workers.copies import EnvCopies
from dressage.workers.group import StepperGroup
from dressage.workers.layout import ParallelLayout
from dressage.workers.making import MakeEnv, env_maker, layout_of

Arrays = list[np.ndarray]


def make_ray_workers(
    make_env: MakeEnv | str,
    num_envs: int,
    layout: ParallelLayout | None = None,
    *,
    num_workers: int,
    address: str = LOCAL,
    timeout: float = 60.0,
    start_timeout: float = 180.0,
) -> StepperGroup:
    """Make copies of an environment that Ray actors step; see `dressage.workers.make_workers`.

    Args:
        make_env: Makes one environment, or a task name.
        num_envs: How many copies.
        layout: How observations and actions lie in arrays; by default read off one more copy made here.
        num_workers: How many actors share the copies out among themselves.
        address: `local` for a cluster on this machine, or a head's address.
        timeout: Seconds that an actor may take to reset or step.
        start_timeout: Seconds that it may take to start.

    Raises:
        ConfigError: If a number is out of range, or the task name is unknown.
        WorkerLostError: If an actor ends or does not start in time.
        DressageError: If no head answers at the address in time.
    """
    copies, workers = whole_number(num_envs), whole_number(num_workers)
    if copies is None or workers is None or not 1 <= workers <= copies:
        raise ConfigError(
            f"num_workers must be an integer from 1 to num_envs, got {num_workers!r} of {num_envs!r}."
        )
    maker = env_maker(make_env)
    found = layout_of(maker) if layout is None else layout
    stepper = RayStepper(maker, copies, found, workers, address, (timeout, start_timeout))
    return StepperGroup(stepper, found)


class RayStepper:
    """A `Stepper` over Ray actors, each with a run of neighbouring copies.

    Args:
        make_env: Makes one environment.
        copies: How many copies.
        layout: How they lie in arrays.
        workers: How many actors.
        address: The cluster's.
        timeouts: Seconds that an actor may take to step or reset, and to start.
    """

    def __init__(
        self,
        make_env: MakeEnv,
        copies: int,
        layout: ParallelLayout,
        workers: int,
        address: str,
        timeouts: tuple[float, float],
    ) -> None:
        self.blocks = blocks_over(layout, copies, bytearray(bytes_needed(layout, copies)))
        self._timeout = timeouts[0]
        self._cluster = Cluster(address, workers, timeouts[1])
        cuts = [index * copies // workers for index in range(workers + 1)]
        self._runs = list(zip(cuts, cuts[1:], strict=False))
        self._actors: list[Any] = []
        self._calls: list[Any] = []
        try:
            for run in self._runs:
                self._actors.append(self._cluster.actor(RayCopies, make_env, layout, *run))
            self._calls = [actor.ready.remote() for actor in self._actors]
            self._finish("starting", timeouts[1])
        except BaseException:
            self.close()
            raise

    def reset(self) -> None:
        """Reset every copy."""
        pairs = zip(self._actors, self._runs, strict=True)
        self._calls = [actor.reset.remote(self.blocks.seeds[start:stop]) for actor, (start, stop) in pairs]
        self._store(self._finish("resetting", self._timeout))

    def send(self) -> None:
        """Have every actor step its copies."""
        self._calls = [
            actor.step.remote(
                [part[:, start:stop] for group in self.blocks.groups for part in group.actions],
                self.blocks.resting[start:stop],
            )
            for actor, (start, stop) in zip(self._actors, self._runs, strict=True)
        ]

    def receive(self) -> None:
        """Wait for every actor."""
        self._store(self._finish("stepping", self._timeout))

    def close(self) -> None:
        """End all actors."""
        actors, self._actors = self._actors, []
        self._cluster.close(actors)

    def _finish(self, doing: str, timeout: float) -> list[Arrays]:
        deadline = time.monotonic() + timeout
        results = []
        for index, (call, (start, stop)) in enumerate(zip(self._calls, self._runs, strict=True)):
            name = f"Worker {index} (Ray, environment copies {start} to {stop - 1})"
            left = max(0.0, deadline - time.monotonic())
            results.append(outcome(call, name, timeout, doing, left))
        return results

    def _store(self, results: list[Arrays]) -> None:
        for (start, stop), arrays in zip(self._runs, results, strict=True):
            for target, array in zip(results_of(self.blocks.copies(start, stop)), arrays, strict=True):
                target[...] = array


class RayCopies:
    """Copies of an environment as an actor.

    Args:
        make_env: Makes one.
        layout: How they lie in arrays.
        start: Number of the first copy.
        stop: One past the last.
    """

    def __init__(self, make_env: MakeEnv, layout: ParallelLayout, start: int, stop: int) -> None:
        count = stop - start
        self._blocks = blocks_over(layout, count, bytearray(bytes_needed(layout, count)))
        self._copies = EnvCopies([make_env() for _ in range(count)], layout, self._blocks, start)

    def ready(self) -> Arrays:
        """Say that the copies are made."""
        return []

    def reset(self, seeds: Sequence[int]) -> Arrays:
        """Reset every copy."""
        self._blocks.seeds[:] = seeds
        self._copies.reset()
        return results_of(self._blocks)

    def step(self, actions: Arrays, resting: Any) -> Arrays:  # noqa: ANN401 ([B] bool)
        """Step every copy that does not rest."""
        self._blocks.resting[:] = resting
        targets = [part for group in self._blocks.groups for part in group.actions]
        for target, array in zip(targets, actions, strict=True):
            target[...] = array
        self._copies.step()
        return results_of(self._blocks)


def results_of(blocks: Blocks) -> Arrays:
    """Return all arrays that come back from the environments, in one order."""
    return [getattr(group, name) for group in blocks.groups for name in RESULTS] + [blocks.ended]
