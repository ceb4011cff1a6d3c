"""Collect, learn, publish: the loop that trains a policy on the fragments of its workers.

The engine knows neither algorithms nor environments nor how workers are reached. It holds the TRAIN policy,
orders fragments, decides what becomes of each, and writes metrics and checkpoints. There is no thread in it:
waiting for a fragment is the only thing that takes time besides learning.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from dressage.errors import DressageError, NonFiniteError, StaleWeightsError, WorkerLostError
from dressage.policy.base_policy import (
    BasePolicy,
    EnvMeta,
    Fragment,
    MetricKind,
    PolicyRole,
    TrainConfig,
    Weights,
)
from dressage.runtime.accounts import Counters, Stopwatch, episode_metrics, lag_metrics
from dressage.runtime.checkpoints import RunCheckpoints, RunState, read_checkpoint, write_checkpoint
from dressage.runtime.config import RuntimeConfig
from dressage.runtime.metric_kinds import KINDS
from dressage.runtime.records import (
    Collected,
    EpisodeSums,
    Hello,
    Order,
    RunSpec,
    Transport,
    WorkerState,
)
from dressage.runtime.seeds import learner_seed, worker_seed
from dressage.runtime.transports import make_transport, shares_stream


class Sink(Protocol):
    """Takes rows of metrics; those of `dressage.reporting` do."""

    def write(self, row: Mapping[str, Any]) -> None:
        """Take one row."""


@dataclass(frozen=True)
class RunReport:
    """What a run came to.

    Attributes:
        updates: Updates behind the policy.
        steps: Environment steps that it learned from.
        metrics: Those of the last update.
        exact_resume: `yes`, or `no (...)` with the reason.
    """

    updates: int
    steps: int
    metrics: Mapping[str, float]
    exact_resume: str


class Engine:
    """Trains a policy; usable in a `with` statement.

    Args:
        spec: What is trained where.
        config: How the run is laid out.
        train_config: What the TRAIN role needs besides; its ranks train in step with each other.
        sinks: Where rows of metrics go.
        folder: Where checkpoints go; None keeps none.
        transport: How workers are reached; by default as `config` says.

    Attributes:
        learner: The TRAIN policy.
        counters: What became of all steps.

    Raises:
        WorkerLostError: If a worker does not get ready.
        ConfigError: If the policy refuses its configuration, or something can't be sent to a worker.
    """

    def __init__(
        self,
        spec: RunSpec,
        config: RuntimeConfig | None = None,
        train_config: TrainConfig | None = None,
        *,
        sinks: Sequence[Sink] = (),
        folder: Path | str | None = None,
        transport: Transport | None = None,
    ) -> None:
        self._config = config or RuntimeConfig()
        self._train_config = train_config or TrainConfig()
        self._asynchronous = spec.policy_config.rollout_mode == "async"
        self._seed = self._config.seed + self._train_config.rank
        self._sinks = sinks
        self._checkpoints = (
            None if folder is None else RunCheckpoints(Path(folder), self._config.keep_checkpoints)
        )
        self.learner: BasePolicy = spec.policy(spec.policy_config, PolicyRole.TRAIN)
        self.counters = Counters()
        self._lives = [0] * self._config.workers
        self._watch = Stopwatch()
        self._told_resume = False
        self._began = time.perf_counter()
        self._transport = transport or make_transport(spec, self._config)
        try:
            self._start(shares_stream(spec.policy_config, self._config))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def exact_resume(self) -> str:
        """Whether a resumed run equals one that was never interrupted: `yes`, or `no (...)`."""
        if self._asynchronous:
            return "no (asynchronous fragments are not saved)"
        if not all(hello.saves_state for hello in self._hellos):
            return "no (environment state not saved)"
        return "yes"

    @property
    def worker_pids(self) -> list[int]:
        """Process ids of the workers, each on its own machine; the learner's own where they are inline."""
        return [hello.pid for hello in self._hellos]

    def run(
        self, updates: int, stop: Callable[[Mapping[str, Any]], bool] | None = None, *, save: bool = True
    ) -> RunReport:
        """Train until so many updates are behind the policy.

        Args:
            updates: Updates in all, those before a resumption included.
            stop: Called with every row of metrics; true ends the run after that update.
            save: Whether to write a checkpoint at the end, where there is a folder for it.

        Raises:
            WorkerLostError: If a worker hangs, or more are lost than the budget allows.
            NonFiniteError: If a number is not finite and that is not to be survived.
            EnvironmentRaisedError: If an environment raises.
            StaleWeightsError: If a synchronous fragment was acted by other weights than the current.
        """
        row: Mapping[str, Any] = {}
        self._watch = Stopwatch()
        self._tell_resume()
        try:
            stopped = False
            while self.learner.version < updates and not stopped:
                row = self._update(updates)
                stopped = stop is not None and stop(row)
        finally:
            self._drop_waiting()
        if save:
            self._save_unless_saved()
        return RunReport(self.learner.version, self.counters.used_steps, row, self.exact_resume)

    def resume(self, checkpoint: Path | str | None = None) -> int:
        """Go on from a checkpoint.

        Args:
            checkpoint: Its folder; by default the newest complete one of the run.

        Returns:
            The number of updates behind it.

        Raises:
            CheckpointError: If there is none, it is damaged, or it was made for another run.
        """
        if checkpoint is None and self._checkpoints is None:
            raise DressageError("There is no folder to resume from: give the engine one.")
        path = checkpoint if self._checkpoints is None else checkpoint or self._checkpoints.newest()
        assert path is not None, "one of the two is there"
        state = read_checkpoint(Path(path), self.learner, self._config.workers)
        self.counters = state.counters
        self._lives = list(state.lives)
        for worker, one in enumerate(state.workers):
            if one is None:
                self._renew(worker, "its environment's state was not saved")
            else:
                self._transport.load_state(worker, one)
        if state.stream is not None:
            self.learner.load_random_state(state.stream)
        self._publish()
        return self.learner.version

    @property
    def metric_kinds(self) -> Mapping[str, MetricKind]:
        """What each metric of a row is, for whoever puts the rows of several updates together."""
        return {**KINDS, **self.learner.metric_kinds}

    @property
    def meta(self) -> EnvMeta:
        """What a policy must know of one worker's environment."""
        return self._hellos[0].meta

    def save(self, path: Path | str) -> None:
        """Write a checkpoint into a folder of its own, for `resume` to read.

        Args:
            path: The folder; must not exist yet.
        """
        write_checkpoint(Path(path), self.learner, self._state())

    def close(self) -> None:
        """End all workers; may be called again."""
        self._transport.close()

    def _start(self, shared: bool) -> None:
        """Make the workers, then the learner: it is drawn after the environments, as rsl_rl's runner does."""
        if shared:
            self.learner.seed(self._seed)
        workers = range(self._config.workers)
        for worker in workers:
            self._transport.start(worker, worker_seed(self._seed, worker, 0))
        self._hellos: list[Hello] = [self._transport.hello(worker) for worker in workers]
        self._travels = shared and self._transport.travelling_stream
        if self._travels:
            self.learner.load_random_state(self._hellos[0].stream)
        elif not shared:
            self.learner.seed(learner_seed(self._seed))
        copies = sum(hello.num_envs for hello in self._hellos)
        self.learner.init_train(self._train_config, replace(self._hellos[0].meta, num_envs=copies))
        self._waiting: list[deque[Collected]] = [deque() for _ in self._hellos]
        self._ordered = [False] * len(self._hellos)
        self._publish()

    def _update(self, updates: int) -> Mapping[str, Any]:
        """Collect, learn and publish once; returns the row of metrics."""
        last = self.learner.version + 1 >= updates
        batch = self._collect(last=last)
        with self._watch.stage("learn"):
            if self._travels and batch[0].stream is not None:
                self.learner.load_random_state(batch[0].stream)
            fragments = [one.fragment for one in batch]
            lags = [self.learner.version - fragment.version for fragment in fragments]
            self.learner.update_dataset(fragments)
            metrics = self.learner.train()
        steps = sum(map(_steps, fragments))
        self.counters.use(steps)
        if last:
            self._drop_waiting()  # Before the row is made: nothing comes after it.
        with self._watch.stage("publish"):
            self._publish()
        if self._config.checkpoint_every and self.learner.version % self._config.checkpoint_every == 0:
            self._save()
        episodes = sum((one.episodes for one in batch), EpisodeSums())
        seconds = self._watch.metrics()
        rate = {"steps_per_second": round(steps / seconds["time/update_s"], 1)}
        counts = {**episode_metrics(episodes), **lag_metrics(lags), **self.counters.metrics()}
        return self._emit({"kind": "train", **rate, **metrics, **counts, **seconds})

    def _publish(self) -> None:
        self._weights: Weights = self.learner.weights(host=not self._transport.in_process)

    def _collect(self, *, last: bool) -> list[Collected]:
        """Return one fragment of every worker.

        An asynchronous run then has the workers go on at once, unless this is the last update; a synchronous
        one leaves them idle until the next weights are there.
        """
        began = time.perf_counter()
        for worker in range(len(self._hellos)):
            self._order(worker, self._depth)
        while not all(self._waiting):
            self._take()
        batch = [waiting.popleft() for waiting in self._waiting]
        self._watch.waited(time.perf_counter() - began, max(one.seconds for one in batch))
        if self._asynchronous and not last:
            for worker in range(len(self._hellos)):
                self._order(worker, self._depth)
        return batch

    @property
    def _depth(self) -> int:
        """How many fragments of a worker may be collected ahead of the learner."""
        return self._config.max_lag if self._asynchronous else 1

    def _order(self, worker: int, depth: int) -> None:
        if self._ordered[worker] or len(self._waiting[worker]) >= depth:
            return
        stream = self.learner.random_state() if self._travels else None
        self._transport.request(worker, Order(self._weights, stream))
        self._ordered[worker] = True

    def _take(self) -> None:
        """Take the next delivery and decide what becomes of it."""
        delivery = self._transport.receive()
        worker = delivery.worker
        self._ordered[worker] = False
        if delivery.error is not None:
            self._survive(worker, delivery.error)
        elif delivery.collected is not None and self._is_fresh(worker, delivery.collected.fragment):
            self._waiting[worker].append(delivery.collected)
        self._order(worker, self._depth)

    def _is_fresh(self, worker: int, fragment: Fragment) -> bool:
        lag = self.learner.version - fragment.version
        if self._asynchronous and 0 <= lag <= self._config.max_lag:
            return True
        if not self._asynchronous and lag == 0:
            return True
        if not self._asynchronous or lag < 0:
            raise StaleWeightsError(
                f"Worker {worker} acted by the weights of version {fragment.version}, and the learner is at "
                f"{self.learner.version}; a synchronous run takes the current version alone."
            )
        self.counters.stale_fragments += 1
        self.counters.drop(_steps(fragment))
        return False

    def _survive(self, worker: int, error: DressageError) -> None:
        """Drop a fragment and replace what failed, or raise where that is not allowed."""
        lost = isinstance(error, WorkerLostError) and not error.hung
        broken = isinstance(error, NonFiniteError) and self._config.non_finite == "quarantine"
        if not lost and not broken:
            raise error
        self.counters.drop(self._hellos[worker].num_envs * self.learner.num_steps)
        self._replace(worker, error, lost=lost)

    def _replace(self, worker: int, error: DressageError, *, lost: bool) -> None:
        """Replace a worker that was lost, or the environment of one, or raise where the budget is spent."""
        self.counters.lost_workers += lost
        self.counters.quarantined_fragments += not lost
        if self.counters.restarts >= self._config.restart_budget:
            spent = f" The run has made {self.counters.restarts} restarts, all that restart_budget allows."
            raise type(error)(str(error) + spent)
        self.counters.restarts += 1
        self._renew(worker, str(error), start=lost)

    def _renew(self, worker: int, why: str, *, start: bool = False) -> None:
        """Have a worker begin anew with a seed that it never had."""
        self._lives[worker] += 1
        seed = worker_seed(self._seed, worker, self._lives[worker])
        self._tell(f"worker {worker} begins anew with seed {seed}: {why}", {"worker": worker, "seed": seed})
        if start:
            self._transport.start(worker, seed)
            self._hellos[worker] = self._transport.hello(worker)
        else:
            self._transport.rebuild(worker, seed)

    def _drop_waiting(self) -> None:
        """Count fragments that were collected ahead and that no update will learn from."""
        for waiting in self._waiting:
            while waiting:
                self.counters.drop(_steps(waiting.popleft().fragment))

    def _save_unless_saved(self) -> None:
        every = self._config.checkpoint_every
        if not every or self.learner.version % every:
            self._save()

    def _save(self) -> None:
        if self._checkpoints is None or self._train_config.rank != 0:
            return
        with self._watch.stage("checkpoint"):
            self._checkpoints.save(self.learner, self._state())

    def _state(self) -> RunState:
        exact = self.exact_resume == "yes"
        workers = [self._state_of(worker) if exact else None for worker in range(len(self._hellos))]
        return RunState(self.counters, tuple(self._lives), tuple(workers), self.learner.random_state())

    def _state_of(self, worker: int) -> WorkerState:
        try:
            return self._transport.state(worker)
        except WorkerLostError as error:
            if error.hung:
                raise
            self._replace(worker, error, lost=True)
            return self._transport.state(worker)

    def _tell_resume(self) -> None:
        if not self._told_resume:
            self._tell("exact resume: " + self.exact_resume)
        self._told_resume = True

    def _tell(self, text: str, numbers: Mapping[str, int] | None = None) -> None:
        """Write an event, which is a row too."""
        self._emit({"kind": "event", "event": text, **(numbers or {})})

    def _emit(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        placed = {
            "updates": self.learner.version,
            "steps": self.counters.used_steps,
            "time_s": round(time.perf_counter() - self._began, 3),
            **row,
        }
        for sink in self._sinks:
            sink.write(placed)
        return placed


def _steps(fragment: Fragment) -> int:
    return fragment.num_steps * fragment.num_envs
