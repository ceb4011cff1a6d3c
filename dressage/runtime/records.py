"""What an engine and its workers say to each other."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from dressage.errors import DressageError
from dressage.policy.base_policy import (
    BasePolicy,
    EnvMeta,
    EvalConfig,
    Fragment,
    PolicyConfig,
    PolicyRole,
    RolloutEnv,
    Weights,
)

MakePolicy = Callable[[PolicyConfig, PolicyRole], BasePolicy]
"""A policy class, or what makes one like it."""

MakeEnv = Callable[[int], RolloutEnv]
"""Makes one worker's environment copies from a seed."""


@dataclass(frozen=True)
class RunSpec:
    """What is trained where; everything in it can be pickled, unless all workers are inline.

    Attributes:
        policy: The policy's class.
        policy_config: Its configuration; `rollout_mode` says whether the run is synchronous.
        make_env: Makes the environment copies of one worker from a seed.
        eval_config: How workers act.
    """

    policy: MakePolicy
    policy_config: PolicyConfig
    make_env: MakeEnv
    eval_config: EvalConfig = field(default_factory=EvalConfig)


@dataclass(frozen=True)
class Hello:
    """What a worker says when it is ready.

    Attributes:
        meta: What a policy must know of the environment.
        num_envs: `N`, its environment copies.
        stream: State of the random stream after the environment was made, `[K]` uint8.
        saves_state: Whether the environment's state can be saved.
        pid: Process id, on whatever machine it runs.
    """

    meta: EnvMeta
    num_envs: int
    stream: np.ndarray
    saves_state: bool
    pid: int


@dataclass(frozen=True)
class Order:
    """One fragment to collect.

    Attributes:
        weights: What to act by.
        stream: State of the random stream to draw from, `[K]` uint8; None goes on with the worker's own.
    """

    weights: Weights
    stream: np.ndarray | None = None


@dataclass(frozen=True)
class EpisodeSums:
    """The episodes that a fragment finished.

    Attributes:
        count: How many.
        returns: Sum of their undiscounted returns.
        lengths: Sum of their lengths, steps.
    """

    count: int = 0
    returns: float = 0.0
    lengths: float = 0.0

    def __add__(self, other: "EpisodeSums") -> "EpisodeSums":
        return EpisodeSums(
            self.count + other.count, self.returns + other.returns, self.lengths + other.lengths
        )


@dataclass(frozen=True)
class Collected:
    """A fragment and what came with it.

    Attributes:
        fragment: The rollout.
        episodes: The episodes that it finished.
        seconds: How long it took the worker, seconds.
        stream: State of the random stream afterwards, where the order brought one.
    """

    fragment: Fragment
    episodes: EpisodeSums
    seconds: float
    stream: np.ndarray | None = None


@dataclass(frozen=True)
class WorkerState:
    """All that a worker's future depends on besides weights; arrays by name.

    Attributes:
        environment: The environment's state; None where it cannot be saved.
        policy: Recurrent state.
        stream: The worker's own random stream, `[K]` uint8.
        episodes: Running return and length of every copy's open episode, `[2, N]`.
    """

    environment: Mapping[str, np.ndarray] | None
    policy: Mapping[str, np.ndarray]
    stream: np.ndarray
    episodes: np.ndarray


@dataclass(frozen=True)
class Delivery:
    """What came of an order.

    Attributes:
        worker: Number of the worker.
        collected: What it collected, or None.
        error: What went wrong instead.
    """

    worker: int
    collected: Collected | None = None
    error: DressageError | None = None


class Transport(Protocol):
    """Reaches workers, wherever they run. Workers are numbered from 0.

    Attributes:
        travelling_stream: Whether orders and fragments must carry the random stream for worker and learner to
            share it: false where both draw from the stream of one process anyway.
        in_process: Whether workers live in the learner's process, so that weights need not be NumPy's.
    """

    travelling_stream: bool
    in_process: bool

    def start(self, worker: int, seed: int) -> None:
        """Begin to make a worker, in place of the one of that number if there was one."""
        ...

    def hello(self, worker: int) -> Hello:
        """Wait until a worker is ready.

        Raises:
            WorkerLostError: If it ends or does not get ready in time.
        """
        ...

    def request(self, worker: int, order: Order) -> None:
        """Have a worker collect a fragment; it must have no other order open."""
        ...

    def receive(self) -> Delivery:
        """Wait for the next fragment of any worker, or what went wrong with one."""
        ...

    def rebuild(self, worker: int, seed: int) -> None:
        """Have an idle worker make its environment anew."""
        ...

    def state(self, worker: int) -> WorkerState:
        """Return the state of an idle worker."""
        ...

    def load_state(self, worker: int, state: WorkerState) -> None:
        """Have an idle worker go on from a state."""
        ...

    def close(self) -> None:
        """End all workers; may be called again."""
        ...
