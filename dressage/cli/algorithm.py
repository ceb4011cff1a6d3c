"""Owns what the command line needs to know of an algorithm, so that no verb knows a learner by name."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np

from dressage.cli.task_names import AnyTask, TaskKind
from dressage.config import Option
from dressage.envs import BaseEnv
from dressage.errors import ConfigError
from dressage.learning.checkpoints import Checkpoints
from dressage.learning.policy_graph import Deployable
from dressage.reporting.filming import Pictures
from dressage.reporting.rollouts import Episodes
from dressage.rl.safety import SafetyReport
from dressage.signals import Signals


class SavablePolicy(Protocol):
    """What training leaves: the policy of one agent, or those of all agents of a task."""

    def save(self, folder: Path) -> None:
        """Write it into a folder; killed at any moment, that holds the policy before or this one."""


PolicyT = TypeVar("PolicyT", bound=SavablePolicy)
PolicyT_co = TypeVar("PolicyT_co", bound=SavablePolicy, covariant=True)


class Trainable(Protocol[PolicyT_co]):
    """A run over `K` seeds that advances in chunks of updates, between which it can be watched.

    Metrics are named `GROUP/NAME`, for instance `train/entropy`; that of one of several agents is named
    `GROUP/NAME/AGENT`, beside the mean over the agents under the plain name.
    """

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that are trained side by side."""

    @property
    def steps_per_update(self) -> int:
        """Environment steps of one update of one seed."""

    @property
    def num_updates(self) -> int:
        """Updates of the whole run."""

    @property
    def exact_resume(self) -> bool:
        """Whether the state holds all that the rest of the run depends on."""

    def init(self) -> Any:  # noqa: ANN401 (the run's own state)
        """Return the state before the first update; it is what a checkpoint holds."""

    def advance(self, state: Any, updates: int) -> tuple[Any, dict[str, np.ndarray]]:  # noqa: ANN401
        """Make updates; the state given is used up. Metrics are `[K]` by name."""

    def evaluate(self, state: Any) -> dict[str, np.ndarray]:  # noqa: ANN401
        """Play evaluation episodes, `[K, E]` by name, and change nothing; empty where there are none.

        The names are `eval/returns`, `eval/lengths` and `eval/finished`.
        """

    def updates_done(self, state: Any) -> int:  # noqa: ANN401
        """Return the number of updates behind a state."""

    def steps_done(self, state: Any) -> int:  # noqa: ANN401
        """Return the environment steps behind a state, of each seed."""

    def policy(self, state: Any, seed_index: int = 0) -> PolicyT_co:  # noqa: ANN401
        """Return the policy of one seed."""


class CheckpointStore(Protocol):
    """The checkpoints of one run; `dressage.learning.checkpoints.Checkpoints` is the usual one."""

    def save(self, step: int, state: Any, note: dict[str, Any]) -> None:  # noqa: ANN401
        """Write one, whole or not at all; one of the same step is left as it is."""

    def steps(self) -> tuple[int, ...]:
        """Return the steps of all that are kept, oldest first."""

    def restore(self, state_like: Any, step: int | None = None) -> tuple[Any, dict[str, Any]]:  # noqa: ANN401
        """Read one back into a state like that of `Trainable.init`; by default the newest."""

    def discard_after(self, step: int) -> None:
        """Remove those of later steps."""


class Algorithm(ABC, Generic[PolicyT]):
    """An algorithm as the verbs see it; `dressage.cli.known_algorithms` lists them.

    Attributes:
        name: What `--algorithm` takes.
        title: What people read.
        help: One line that says what it is.
        trains: Whether it trains tasks of one agent, of several, or in torch.
        also_trains: What it trains besides, where it is named.
        options: Declarations of everything that `--set` takes.
        steps_option: The option that `--steps` sets: environment steps of each seed.
        presets: Options that differ from the defaults, by task; each trains its task well.
        config_option: The option that a file given by `--config` fills as a whole; None where the file holds
            options themselves.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    help: ClassVar[str]
    trains: ClassVar[TaskKind]
    also_trains: ClassVar[tuple[TaskKind, ...]] = ()
    options: ClassVar[tuple[Option, ...]]
    steps_option: ClassVar[str]
    presets: ClassVar[Mapping[str, Mapping[str, Any]]]
    config_option: ClassVar[str | None] = None

    @abstractmethod
    def resolve(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return every option with its checked value; what is not given is at its default.

        Raises:
            ConfigError: If a name is unknown or a value is not legal.
        """

    @abstractmethod
    def make_run(
        self, task: AnyTask, options: Mapping[str, Any], seeds: tuple[int, ...]
    ) -> Trainable[PolicyT]:
        """Prepare a run; nothing is compiled.

        Args:
            task: What to train on, of the kind that `trains` says.
            options: What `resolve` returned, or a run's record keeps of it.
            seeds: The seeds to train side by side.

        Raises:
            DressageError: If the options do not fit the task, or the task breaks its contract.
        """

    @abstractmethod
    def updates_at_evaluations(self, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Return after how many updates each evaluation of a run is due; the last one ends the run."""

    @abstractmethod
    def load_policy(self, folder: Path) -> PolicyT:
        """Read a policy that its `save` wrote.

        Raises:
            CheckpointError: If a file is missing or damaged.
        """

    def checkpoints(self, folder: Path, keep: int) -> CheckpointStore:
        """Open the checkpoints of a run.

        Args:
            folder: Where they lie; it need not exist yet.
            keep: How many of the latest to keep, at least 1.
        """
        return Checkpoints(folder, keep=keep)

    def close_run(self, run: Trainable[PolicyT]) -> None:
        """Let go of what a run holds besides memory; here nothing."""

    def events(self, run: Trainable[PolicyT]) -> Sequence[Mapping[str, Any]]:  # noqa: ARG002
        """Return what happened to a run since the last look, besides training; here nothing ever does.

        Each is one for `dressage.reporting.metric_rows.event_row`; the terminal tells those with a `worker`.
        """
        return ()

    def told_changes(self, changed: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """Return the options that differ from their defaults as people should read them; here as they are.

        Args:
            changed: By name, entries of mappings with dots; None for an entry that is left out.
            options: All options.
        """
        return changed

    def warnings(self, options: Mapping[str, Any]) -> Sequence[str]:  # noqa: ARG002
        """Return what a user should know of the options before training; here nothing."""
        return ()

    def judged_episodes(self, options: Mapping[str, Any]) -> int:  # noqa: ARG002
        """Return how many episodes judge the cost limits of a run after training; here there are none."""
        return 0

    def judge(self, task: AnyTask, policy: PolicyT, episodes: int, seed: int) -> SafetyReport:  # noqa: ARG002
        """Play episodes with sampled actions and judge every agent's cost limit.

        Raises:
            ConfigError: If the policies were trained without one.
        """
        raise ConfigError(f"{self.title} trains without a cost limit, so there is none to require.")

    def deployables(self, policy: PolicyT) -> Mapping[str, Deployable]:
        """Return the policies that can be exported, by agent; here none."""
        return {}

    def signals(self, task: AnyTask, policy: PolicyT) -> Signals | None:  # noqa: ARG002 (some policies know)
        """Name the numbers that a policy takes and gives; None where nobody knows them."""
        return task.signals() if isinstance(task, BaseEnv) else None

    @abstractmethod
    def play(self, task: AnyTask, policy: PolicyT, episodes: int, seed: int, *, stochastic: bool) -> Episodes:
        """Play one episode in each of several copies.

        Args:
            task: What to play.
            policy: Acts.
            episodes: How many, at least 1.
            seed: Draws the initial states, and the actions where they are sampled.
            stochastic: Sample the actions instead of taking the most likely ones.
        """

    @abstractmethod
    def film(self, task_name: str, policy: PolicyT, seed: int, episodes: int) -> Pictures:
        """Play episodes with the most likely actions and draw that with the median return.

        Args:
            task_name: One that cannot be drawn gives no frames and a note that says why.
            policy: Acts.
            seed: Draws the initial states.
            episodes: How many to choose from, at least 1.
        """


class FineTunable(Algorithm[PolicyT]):
    """An algorithm whose training can start from policies that were exported."""

    @abstractmethod
    def adopt(self, shipped: Mapping[str, Any]) -> PolicyT:
        """Take policies that were read from exported files as this algorithm's own.

        Args:
            shipped: What `dressage.export.load_policy` gave, by agent.

        Raises:
            ConfigError: If it does not train such policies.
        """

    @abstractmethod
    def options_of(self, policy: PolicyT) -> dict[str, Any]:
        """Return the options that a policy fixes for whoever goes on training it.

        Raises:
            ConfigError: If policies of several agents do not go together.
        """

    @abstractmethod
    def check_start(self, run: Trainable[PolicyT], policy: PolicyT) -> None:
        """Refuse a policy that a run does not fit, before anything is compiled or written.

        Raises:
            ConfigError: If spaces, agents or networks differ; the text names what.
        """

    @abstractmethod
    def start_from(
        self,
        run: Trainable[PolicyT],
        state: Any,  # noqa: ANN401
        policy: PolicyT,
        *,
        keep_statistics: bool,
    ) -> Any:  # noqa: ANN401 (the run's own state)
        """Put a policy into a fresh state of a run, which is used up.

        Raises:
            ConfigError: If the policy does not fit the run.
        """
