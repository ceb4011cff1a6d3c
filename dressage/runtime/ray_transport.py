"""Workers as actors of a Ray cluster: whole fragments travel through its object store.

Arrays that come out of the store are read-only, those of fragments and those of weights.
"""

import time
from collections import deque
from typing import Any

import numpy as np
import ray

from dressage.errors import DressageError
from dressage.policy.base_policy import Weights
from dressage.runtime.config import RuntimeConfig
from dressage.runtime.ray_cluster import LOCAL, Cluster, late, outcome
from dressage.runtime.records import Collected, Delivery, Hello, Order, RunSpec, WorkerState
from dressage.runtime.rollout_worker import RolloutWorker


class RayTransport:
    """A `Transport` over Ray actors.

    Args:
        spec: What workers are made of.
        config: The cluster's address and time-outs.
    """

    travelling_stream = True
    in_process = False

    def __init__(self, spec: RunSpec, config: RuntimeConfig) -> None:
        self._config = config
        self._cluster = Cluster(config.address or LOCAL, config.workers, config.start_timeout_s)
        self._spec = ray.put(spec)
        self._actors: dict[int, Any] = {}
        self._orders: dict[Any, tuple[int, float]] = {}
        self._arrived: deque[Delivery] = deque()
        self._published: tuple[Weights, Any] | None = None

    def start(self, worker: int, seed: int) -> None:
        """Start an actor, in place of the worker's last."""
        if worker in self._actors:
            ray.kill(self._actors.pop(worker))
        self._actors[worker] = self._cluster.actor(RayWorker, self._spec, worker, seed)

    def hello(self, worker: int) -> Hello:
        """Wait until an actor has made its environment and its policy."""
        call = self._actors[worker].hello.remote()
        hello: Hello = self._ask(call, worker, self._config.start_timeout_s, "starting")
        return hello

    def request(self, worker: int, order: Order) -> None:
        """Have a worker collect a fragment; weights are put into the object store once a version."""
        if self._published is None or self._published[0] is not order.weights:
            self._published = (order.weights, ray.put(order.weights))
        reference = self._actors[worker].collect_by.remote(self._published[1], order.stream)
        self._orders[reference] = (worker, time.monotonic() + self._config.timeout_s)

    def receive(self) -> Delivery:
        """Wait for whoever is first; a worker that is late for its fragment is an error."""
        soonest = min(deadline for _, deadline in self._orders.values())
        ready, _ = ray.wait(list(self._orders), num_returns=1, timeout=max(0.0, soonest - time.monotonic()))
        doing = "collecting a fragment"
        if not ready:
            reference = min(self._orders, key=lambda one: self._orders[one][1])
            worker, _ = self._orders.pop(reference)
            return Delivery(worker, error=late(_name(worker), self._config.timeout_s, doing))
        worker, _ = self._orders.pop(ready[0])
        try:
            collected = outcome(ready[0], _name(worker), self._config.timeout_s, doing)
        except DressageError as error:
            return Delivery(worker, error=error)
        if isinstance(collected, DressageError):
            return Delivery(worker, error=collected)
        return Delivery(worker, collected)

    def rebuild(self, worker: int, seed: int) -> None:
        """Have a worker make its environment anew."""
        doing = "making its environment anew"
        self._ask(self._actors[worker].rebuild.remote(seed), worker, self._config.start_timeout_s, doing)

    def state(self, worker: int) -> WorkerState:
        """Return a worker's state."""
        call = self._actors[worker].state.remote()
        state: WorkerState = self._ask(call, worker, self._config.timeout_s, "saving its state")
        return state

    def load_state(self, worker: int, state: WorkerState) -> None:
        """Have a worker go on from a state."""
        call = self._actors[worker].load_state.remote(state)
        self._ask(call, worker, self._config.timeout_s, "loading its state")

    def close(self) -> None:
        """End all actors."""
        actors, self._actors = list(self._actors.values()), {}
        self._orders = {}
        self._cluster.close(actors)

    def _ask(self, call: Any, worker: int, timeout: float, doing: str) -> Any:  # noqa: ANN401
        return outcome(call, _name(worker), timeout, doing)


class RayWorker(RolloutWorker):
    """A worker as an actor: weights come as an argument of their own, so that Ray shares them."""

    def collect_by(self, weights: Weights, stream: np.ndarray | None) -> Collected | DressageError:
        """Collect a fragment, or return what `RolloutWorker.collect` raises.

        Where one worker's error ends a run, nobody asks for the other's: raised, Ray would print it.
        """
        try:
            return self.collect(Order(weights, stream))
        except DressageError as error:
            return error


def _name(worker: int) -> str:
    return f"Worker {worker} (Ray)"
