"""Owns what an engine needs of a policy: two roles, the records between them, and the methods of each role.

The engine's loop, for one worker and the learner:

```text
worker (EVAL)                                     learner (TRAIN)
    load_weights(weights)              <-------   weights()
    env_ret = env.observe()
    T times:
        response = rollout_step(env_ret)
        env_ret = env.step(response.action)
        postprocess(env_ret, response)
    close_fragment(transitions, env_ret) ----->   update_dataset([fragment, ...])
                                                  train()
```

Nothing here knows how a fragment or a set of weights travels. Arrays are those of the policy's own framework
within a process and NumPy's between processes. `T` is the number of steps in a fragment, `N` the number of
environment copies.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from gymnasium import spaces

from dressage.config import suggest
from dressage.errors import ConfigError

Array = Any
"""An array of the policy's framework (torch, JAX or NumPy), or a mapping of such by observation group."""

TimeOutRule = Literal["final_observation", "rsl_rl"]

MetricKind = Literal["counter", "count", "peak", "mean", "episode mean"]
"""What a metric of an update is: a `counter` over the whole run, a `count` of what the update had, a `peak`,
a `mean` (rates and states too), or a mean over the update's finished episodes."""

ROLLOUT_MODES = ("sync", "async")
TIME_OUT_RULES = ("final_observation", "rsl_rl")


class PolicyRole(Enum):
    """What a policy is there for.

    Attributes:
        TRAIN: Learns; holds optimiser and storage, never acts.
        EVAL: Acts beside an environment; holds weights and recurrent state, never learns.
    """

    TRAIN = "train"
    EVAL = "eval"


@dataclass(frozen=True)
class PolicyConfig:
    """Which policy, and its own configuration.

    Attributes:
        type: The policy's class name.
        policy_kwargs: The policy's own configuration; for `RSLRLPolicy` the training configuration that
            rsl_rl's runner takes.
        rollout_mode: `sync` acts with the learner's current weights, `async` may lag behind them.
        device: Where the policy computes, as its framework names it.
        time_out_bootstrap: What follows a time limit: `final_observation` uses the value of the observation
            that the episode ended with, where the environment gives it, and else rsl_rl's rule; `rsl_rl`
            always uses the value of the observation before the last step.

    Raises:
        ConfigError: If `rollout_mode` or `time_out_bootstrap` is none of those.
    """

    type: str = "RSLRLPolicy"
    policy_kwargs: Mapping[str, Any] = field(default_factory=dict)
    rollout_mode: Literal["sync", "async"] = "sync"
    device: str = "cpu"
    time_out_bootstrap: TimeOutRule = "final_observation"

    def __post_init__(self) -> None:
        _check_choice("rollout_mode", self.rollout_mode, ROLLOUT_MODES)
        _check_choice("time_out_bootstrap", self.time_out_bootstrap, TIME_OUT_RULES)


@dataclass(frozen=True)
class TrainConfig:
    """What the TRAIN role needs besides the policy's configuration.

    Attributes:
        optimizer: An optimiser to set up in place of the configured one; None keeps that.
        rank: This learner's number among several that train together.
        world_size: How many learners train together; above 1 the process group must exist already and hold
            the learners alone.

    Raises:
        ConfigError: If `rank` does not lie below `world_size`.
    """

    optimizer: Mapping[str, Any] | None = None
    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world_size:
            raise ConfigError(
                f"TrainConfig rank must lie in 0 to world_size - 1, got {self.rank} of {self.world_size}."
            )


@dataclass(frozen=True)
class EvalConfig:
    """What the EVAL role needs besides the policy's configuration.

    Attributes:
        deterministic: Act by the distribution's mean, for evaluations; nothing can be learned from that.
    """

    deterministic: bool = False


@dataclass(frozen=True)
class EnvMeta:
    """What a policy must know of its environment.

    Attributes:
        env_id: The environment's name.
        action_space: Space of one copy's action.
        observation_space: Space of one copy's observation.
        num_envs: Number of copies that act or learn together; for TRAIN the sum over all workers.
    """

    env_id: str | None = None
    action_space: spaces.Space[Any] | None = None
    observation_space: spaces.Space[Any] | None = None
    num_envs: int | None = None


@dataclass(frozen=True)
class EnvRet:
    """What an environment says: where it stands, and what the action before brought.

    Attributes:
        env_id: The environment that says it.
        observation: `[N, ...]`, or a mapping of such by group; after a reset where an episode ended.
        last_reward: `[N]`; None before the first step.
        last_terminated: `[N]` bool: the task ended, so nothing follows; None before the first step.
        last_truncated: `[N]` bool: a time limit cut the episode; None before the first step.
        info: What else the environment tells, for logging.
        final_observation: `[N, ...]`, or by group: the observation that really followed the action. Rows
            whose episode goes on are not read. None where the environment does not give it.
    """

    env_id: str
    observation: Array
    last_reward: Array | None = None
    last_terminated: Array | None = None
    last_truncated: Array | None = None
    info: Mapping[str, Any] = field(default_factory=dict)
    final_observation: Array | None = None


@dataclass(frozen=True)
class PolicyResponse:
    """One step: the policy's answer, and, once the environment has answered that, the whole transition.

    Attributes:
        env_id: The environment that it is for.
        observation: What was seen, `[N, ...]` or by group.
        action: What the environment gets, `[N, ...]`.
        version: Version of the weights that acted.
        value: The critic's estimate at `observation`, `[N, 1]`; None where there is no critic.
        log_prob: Log-probability of the action, `[N]`, nats.
        distribution_params: Parameters of the action's distribution, each `[N, ...]`.
        hidden_state: Recurrent state that the step started from, by module, each leaf `[N, layers, units]`.
        extras: What the policy's own learning needs besides, each `[N, ...]`.
        reward: `[N]`; None while pending, like all that follow.
        terminated: `[N]` bool.
        truncated: `[N]` bool.
        bootstrap_value: `[N]`: value of what would have followed a time limit, 0 where there was none.
        bootstrap_rule: How `bootstrap_value` came about; None where the step had no time limit.
        final: What the value of the final observation was computed from, for rows `final["rows"]`; empty
            where the rule is rsl_rl's.
    """

    env_id: str
    observation: Array
    action: Array
    version: int
    value: Array | None = None
    log_prob: Array | None = None
    distribution_params: tuple[Array, ...] = ()
    hidden_state: Mapping[str, Array] = field(default_factory=dict)
    extras: Mapping[str, Array] = field(default_factory=dict)
    reward: Array | None = None
    terminated: Array | None = None
    truncated: Array | None = None
    bootstrap_value: Array | None = None
    bootstrap_rule: TimeOutRule | None = None
    final: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Fragment:
    """A rollout of one worker: what travels from it to the learner, always whole.

    Names are paths with slashes (`observation/policy`, `hidden_state/actor/0`); which there are is the
    policy's own business. The arrays are contiguous.

    Attributes:
        env_id: The environment that it comes from.
        version: Version of the weights that acted, one for the whole fragment.
        steps: By name, `[T, N, ...]`.
        last: What held after the last step, by name, `[N, ...]`.
        finals: Final observations of episodes that a time limit cut, by name, `[M, ...]`; `index` `[M, 2]`
            says at which step and in which copy. Empty where there are none.
        seed: Seed of the worker's environment, for logs; None where it has none.
    """

    env_id: str
    version: int
    steps: Mapping[str, Array]
    last: Mapping[str, Array]
    finals: Mapping[str, Array] = field(default_factory=dict)
    seed: int | None = None

    @property
    def num_steps(self) -> int:
        """Steps of each copy, `T`."""
        return int(self.steps["reward"].shape[0])

    @property
    def num_envs(self) -> int:
        """Environment copies, `N`."""
        return int(self.steps["reward"].shape[1])


@dataclass(frozen=True)
class Weights:
    """An immutable snapshot of all that acting depends on.

    Attributes:
        version: Number of updates behind it.
        arrays: By `module/parameter`, statistics of normalisers included; never changed after it was made.
    """

    version: int
    arrays: Mapping[str, Array]


class RolloutEnv(Protocol):
    """A batch of environment copies as a worker steps them; where an episode ends it starts the next."""

    @property
    def num_envs(self) -> int:
        """Number of copies."""

    def meta(self) -> EnvMeta:
        """Return what a policy must know of it."""

    def observe(self) -> EnvRet:
        """Return where it stands, without a step; the first call starts the first episodes."""

    def step(self, action: Array) -> EnvRet:
        """Take one action, `[N, ...]`, in every copy."""

    def state(self) -> Mapping[str, np.ndarray] | None:
        """Return all that its future depends on, or None where that cannot be had."""

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from what `state` returned."""

    def close(self) -> None:
        """Let go of what it holds."""


class BasePolicy(ABC):
    """A policy in one of two roles. It knows algorithms and arrays, and no transport, thread or file format.

    Args:
        config: Which policy, and its own configuration.
        role_type: What this one is there for, or its name, `train` or `eval`.

    Raises:
        ConfigError: If there is no such role.

    Attributes:
        config: As given.
        role_type: As given.
        version: Number of updates behind the weights that it holds.
        metric_kinds: Kinds of the metrics that `train` returns; one that is not named is a `mean`.
    """

    metric_kinds: ClassVar[Mapping[str, MetricKind]] = {}

    def __init__(self, config: PolicyConfig, role_type: PolicyRole | str) -> None:
        self.config = config
        self.role_type = _role(role_type)
        self.version = 0

    @abstractmethod
    def init_train(self, train_config: TrainConfig, env_meta: EnvMeta | None = None) -> None:
        """Build the learner; `env_meta.num_envs` counts the copies of all workers. TRAIN only."""

    @abstractmethod
    def init_eval(self, eval_config: EvalConfig | None = None, env_meta: EnvMeta | None = None) -> None:
        """Build what acts beside `env_meta.num_envs` copies; it takes no random number. EVAL only."""

    @property
    @abstractmethod
    def num_steps(self) -> int:
        """Steps of each copy that one update learns from, `T`."""

    def collecting(self) -> AbstractContextManager[None]:
        """Return what a worker enters while it steps its environment or sets its state. EVAL only.

        By default nothing. A framework that records operations for gradients turns that off here, once a
        fragment, for the environment too.
        """
        return nullcontext()

    @abstractmethod
    def rollout_step(self, env_ret: EnvRet) -> PolicyResponse:
        """Choose an action for every copy; `postprocess` completes the pending response. EVAL only."""

    @abstractmethod
    def postprocess(self, env_ret: EnvRet, policy_resp: PolicyResponse) -> PolicyResponse:
        """Join a pending response with the environment's answer to it, into one transition. EVAL only.

        Args:
            env_ret: What the environment returned to `policy_resp.action`.
            policy_resp: The pending response.
        """

    @abstractmethod
    def close_fragment(
        self, transitions: Sequence[PolicyResponse], env_ret: EnvRet, *, host: bool = True
    ) -> Fragment:
        """Put the transitions of a rollout together. EVAL only.

        Args:
            transitions: What `postprocess` returned, in order.
            env_ret: What the environment returned last.
            host: Whether the arrays become NumPy's; False keeps the policy's own, for a learner in the
                same process.
        """

    @abstractmethod
    def update_dataset(self, data: Any) -> None:  # noqa: ANN401 (the policy's own batch, or fragments)
        """Take the data of one update: a sequence of `Fragment`s, or a batch in the policy's own form.

        TRAIN only. Fragments of older versions are corrected or refused by the policy.
        """

    @abstractmethod
    def train(self) -> dict[str, float]:
        """Make one update, raise `version` by one and return `training/...` metrics. TRAIN only."""

    @abstractmethod
    def get_trainable_parameters(self) -> dict[str, dict[str, Array]]:
        """Return copies of the state of every module, buffers included, by module and name."""

    @abstractmethod
    def load_state_dict(self, state_dict: Mapping[str, Mapping[str, Array]]) -> None:
        """Load what `get_trainable_parameters` returned; modules, names and shapes must match."""

    @abstractmethod
    def weights(self, *, host: bool = True) -> Weights:
        """Return a snapshot.

        Args:
            host: Whether the arrays become NumPy's; False keeps the policy's own, for workers in the same
                process.
        """

    @abstractmethod
    def load_weights(self, weights: Weights) -> None:
        """Load a snapshot and take on its version; recurrent state goes on."""

    @abstractmethod
    def rollout_state(self) -> dict[str, np.ndarray]:
        """Return what acting depends on besides the weights: recurrent state. Empty where there is none."""

    @abstractmethod
    def load_rollout_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from what `rollout_state` returned."""

    @abstractmethod
    def random_state(self) -> np.ndarray:
        """Return the state of the random stream that the policy draws from, as bytes `[K]` uint8.

        A framework with one stream for the whole process (torch) returns that one, so an engine with several
        policies in a process gives each its own by exchanging states around its turn.
        """

    @abstractmethod
    def load_random_state(self, state: np.ndarray) -> None:
        """Go on drawing from where `random_state` stood."""

    @abstractmethod
    def seed(self, seed: int) -> None:
        """Start the random stream anew from a seed, at least 0."""

    @abstractmethod
    def save_checkpoint(self, path: Path | str, note: Mapping[str, Any]) -> None:
        """Write all that learning depends on, whole or not at all, and a note of plain values. TRAIN only."""

    @abstractmethod
    def load_checkpoint(self, path: Path | str) -> dict[str, Any]:
        """Read a checkpoint and return its note. TRAIN goes on learning from it; EVAL takes the weights."""


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        allowed = " or ".join(repr(choice) for choice in choices)
        raise ConfigError(
            f"PolicyConfig {name} must be {allowed}, got {value!r}.{suggest(str(value), choices)}"
        )


def _role(given: PolicyRole | str) -> PolicyRole:
    try:
        return PolicyRole(given.lower() if isinstance(given, str) else given)
    except ValueError as error:
        raise ConfigError(f"role_type must be PolicyRole.TRAIN or PolicyRole.EVAL, got {given!r}.") from error
