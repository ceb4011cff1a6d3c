"""Workers in the learner's own process: a direct call each, in the order of their numbers."""

from collections import deque

from dressage.errors import DressageError
from dressage.runtime.records import Delivery, Hello, Order, RunSpec, WorkerState
from dressage.runtime.rollout_worker import RolloutWorker


class InlineTransport:
    """A `Transport` without processes; orders are carried out when a fragment is waited for.

    Args:
        spec: What workers are made of.
        shares_stream: Whether the worker draws from the process's random stream, as rsl_rl's runner does; for
            one worker in a synchronous run.
    """

    travelling_stream = False
    in_process = True

    def __init__(self, spec: RunSpec, *, shares_stream: bool) -> None:
        self._spec = spec
        self._shares = shares_stream
        self._workers: dict[int, RolloutWorker] = {}
        self._orders: deque[tuple[int, Order]] = deque()

    def start(self, worker: int, seed: int) -> None:
        """Make a worker."""
        self._workers[worker] = RolloutWorker(
            self._spec, worker, seed, host=False, shares_stream=self._shares
        )

    def hello(self, worker: int) -> Hello:
        """Return what a worker says of itself."""
        return self._workers[worker].hello()

    def request(self, worker: int, order: Order) -> None:
        """Note an order."""
        self._orders.append((worker, order))

    def receive(self) -> Delivery:
        """Carry out the oldest order."""
        worker, order = self._orders.popleft()
        try:
            return Delivery(worker, self._workers[worker].collect(order))
        except DressageError as error:
            return Delivery(worker, error=error)

    def rebuild(self, worker: int, seed: int) -> None:
        """Make a worker's environment anew."""
        self._workers[worker].rebuild(seed)

    def state(self, worker: int) -> WorkerState:
        """Return a worker's state."""
        return self._workers[worker].state()

    def load_state(self, worker: int, state: WorkerState) -> None:
        """Have a worker go on from a state."""
        self._workers[worker].load_state(state)

    def close(self) -> None:
        """Close all environments, once."""
        while self._workers:
            self._workers.popitem()[1].close()
