"""The base of all multi-agent learners: from options and an environment to a result, whatever is learned."""

import abc
import dataclasses
import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from dressage.config import whole_number
from dressage.errors import ConfigError, NonFiniteError
from dressage.learning.architecture import Architecture
from dressage.learning.evaluation import EpisodeResults, Evaluation
from dressage.learning.group_spaces import GroupSpaces
from dressage.learning.groups import Group, Learner
from dressage.learning.logged_run import LoggedRun
from dressage.learning.records import Fault, LearnerState
from dressage.learning.specs import AgentSpec
from dressage.learning.update_log import UpdateLog, finished_episodes
from dressage.rl.adapters import PolicyAdapter, trained_adapter
from dressage.rl.environments import TrainingEnv, training_env
from dressage.rl.options import Options, check_config
from dressage.rl.results import Progress, TrainResult, agent_states, restored_state

LARGEST_SEED = 2**32 - 1


@dataclasses.dataclass(frozen=True)
class TrainEvent:
    """What a callback is told after each update.

    Attributes:
        progress: How far training has come.
        metrics: For each agent, the update's metrics.
        episodes: The episodes that finished in the update's rollout, as in `TrainResult.history`.
        result: Makes a result of training as it stands, for instance to save it.
    """

    progress: Progress
    metrics: dict[str, dict[str, float]]
    episodes: list[dict[str, Any]]
    result: Callable[[], TrainResult]


Callback: TypeAlias = Callable[[TrainEvent], bool | None]
"""Called after each update; True stops training."""


class Algorithm(abc.ABC):
    """A multi-agent learner: options and a seed, and what has been trained so far.

    Attributes:
        NAME: What error texts and files call it.
        OPTIONS: Declarations of all its options.
        config: The checked options.
        seed: The seed.
    """

    NAME: ClassVar[str]
    OPTIONS: ClassVar[Options]
    ADAPTER: ClassVar[type[PolicyAdapter]] = PolicyAdapter

    def __init__(self, cfg: dict[str, Any] | None = None, *, seed: int = 0) -> None:
        """Check options and seed; nothing is compiled.

        Args:
            cfg: Options that differ from the defaults.
            seed: In [0, 2^32 - 1]; the same seed gives the same result, bit for bit, on the same machine.

        Raises:
            ConfigError: If an option is unknown or a value is not legal.
        """
        self.config = self.validate(cfg)
        self._given = frozenset(cfg or ())
        self.seed = _checked_seed(seed, self.NAME)
        self._training: _Training | None = None
        self._latest: _Training | None = None  # What `evaluate` plays with: also several seeds at once.

    @classmethod
    def validate(cls, overrides: dict[str, Any] | None = None) -> dict[str, Any]:
        """Merge options with the defaults and check them.

        Raises:
            ConfigError: If an option is unknown, of the wrong type, out of its range, or contradicts another.
        """
        return check_config(cls.OPTIONS, overrides, cls.NAME)

    @abc.abstractmethod
    def make_learner(
        self, spec: AgentSpec, spaces: GroupSpaces, env: TrainingEnv, optimizer_steps: int
    ) -> Learner:
        """Return what trains each agent of a group.

        Args:
            spec: The agents' spaces, as the network sees them.
            spaces: The same with names.
            env: The environment.
            optimizer_steps: Optimiser applications of the whole training, at which annealing ends.
        """

    @abc.abstractmethod
    def optimizer_steps(self, timesteps: int, copies: int) -> int:
        """Return the optimiser applications that `timesteps` steps over `copies` copies make."""

    def watch(self, agent: str, metrics: dict[str, float]) -> None:  # noqa: B027 (most learners are silent)
        """Look at an agent's metrics of one update, to warn of what the user should know of."""

    def train(
        self,
        env: Any,  # noqa: ANN401 (see Args)
        total_timesteps: int,
        *,
        callbacks: Sequence[Callback] = (),
        resume_from: str | Path | TrainResult | None = None,
    ) -> TrainResult:
        """Train every agent.

        A second call goes on from where the first ended. Exactly `total_timesteps` steps are taken: the last
        rollout may be shorter.

        Args:
            env: A functional environment (the whole of training is then one compiled program), a PettingZoo
                `ParallelEnv`, or a function without arguments that makes one.
            total_timesteps: Environment steps to take, over all copies, >= 0; not times agents. What
                was taken before does not count.
            callbacks: Each is called after every update with a `TrainEvent`; True stops training.
            resume_from: A result, or a folder that one was saved in, to go on from.

        Returns:
            The result of all training so far.

        Raises:
            ConfigError: If options or what is to be resumed do not fit the environment.
            EnvironmentContractError: If the environment breaks its contract.
            UnsupportedSpaceError: If an agent's space is not supported.
            NonFiniteError: If the environment gave a number that is not finite. Parameters are then as they
                were before that rollout, and training can go on from there.
        """
        total = _checked_steps(total_timesteps, self.NAME)
        training = self._continue(env, total, resume_from)
        self._training = self._latest = training
        _take_steps(training, total, tuple(callbacks))
        return training.result()

    def train_seeds(
        self,
        env: Any,  # noqa: ANN401
        total_timesteps: int,
        seeds: Sequence[int],
    ) -> list[TrainResult]:
        """Train one result for each seed; over a functional environment all of them in one program.

        Args:
            env: As in `train`; on the host it must be a function that makes an environment.
            total_timesteps: Environment steps of each seed.
            seeds: At least one.

        Raises:
            ConfigError: As `train`, or if there is no seed.
        """
        total = _checked_steps(total_timesteps, self.NAME)
        checked = tuple(_checked_seed(seed, self.NAME) for seed in seeds)
        if not checked:
            raise ConfigError(f"{self.NAME}.train_seeds needs at least one seed, got none.")
        prepared = self.prepare(env)
        if not prepared.compiled or len(checked) == 1:
            return [type(self)(self.config, seed=seed).train(env, total) for seed in checked]
        groups = self._groups(prepared, self.optimizer_steps(total, prepared.copies))
        training = _Training(self, env, prepared, prepared.make_run(groups, checked), groups)
        training.state = training.run.init()
        self._latest = training
        _take_steps(training, total, ())
        return [training.result(index) for index in range(len(checked))]

    def evaluate(
        self,
        env: Any,  # noqa: ANN401
        episodes: int,
        *,
        stochastic: bool = True,
        seed: int = 0,
    ) -> dict[str, dict[str, np.ndarray]]:
        """Play whole episodes with the trained policies; nothing of training changes.

        Args:
            env: What `train` was given.
            episodes: How many, at least 1; each in a copy of its own.
            stochastic: Whether actions are sampled, as in training; otherwise the most likely ones are taken.
            seed: Another one plays other episodes.

        Returns:
            For each agent `returns`, `costs`, `lengths` and `finished`, `[episodes]` each. After
            `train_seeds` over a functional environment they are `[seeds, episodes]`.

        Raises:
            ConfigError: If nothing has been trained yet, or `episodes` is not a whole number of at least 1.
        """
        number = whole_number(episodes)
        if number is None or number < 1:
            raise ConfigError(f"{self.NAME}.evaluate needs episodes >= 1, got {episodes!r}.")
        training = self._latest
        if training is None or training.env is not env:
            raise ConfigError(f"{self.NAME} has not been trained on this environment yet: call train first.")
        results = training.run.evaluate(training.state, number, Evaluation(stochastic, seed))
        return named_results(training.groups, results)

    def close(self) -> None:
        """Close the environments that were trained on, and end their worker processes; results stay."""
        if self._training is not None:
            self._training.run.close()
            self._training.broken = True

    def prepare(self, env: Any) -> TrainingEnv:  # noqa: ANN401
        """Check an environment and prepare its copies; see `train` for what it may be.

        Raises:
            DressageError: If it breaks its contract, is not supported, or options do not fit it.
        """
        return training_env(env, self.config, self._given, self.NAME)

    def make_groups(self, env: TrainingEnv, total_timesteps: int) -> tuple[Group, ...]:
        """Return the groups of learners for a training of `total_timesteps` environment steps."""
        return self._groups(env, self.optimizer_steps(total_timesteps, env.copies))

    def _continue(self, env: Any, total: int, resume_from: str | Path | TrainResult | None) -> "_Training":  # noqa: ANN401
        """Find what to go on from, and lay out the rest of training."""
        before = self._training
        if resume_from is None and before is not None and before.env is env and not before.broken:
            return self._extend(before, total)
        saved = TrainResult.load(resume_from) if isinstance(resume_from, str | Path) else resume_from
        if saved is None and before is not None:
            saved = before.result()
        prepared = self.prepare(env)
        done = 0 if saved is None else _optimizer_steps_of(saved)
        groups = self._groups(prepared, done + self.optimizer_steps(total, prepared.copies))
        training = _Training(self, env, prepared, prepared.make_run(groups, (self.seed,)), groups)
        training.state = training.run.init()
        if saved is not None:
            training.take_over(saved)
        return training

    def _extend(self, before: "_Training", total: int) -> "_Training":
        """Go on with the same environments; only the end of the learning rate's schedule may move."""
        if not self.config.get("anneal_learning_rate", False):
            return before
        done = int(np.max(before.state.agents[0].optimizer_steps))
        groups = self._groups(before.prepared, done + self.optimizer_steps(total, before.prepared.copies))
        before.regroup(groups)
        return before

    def _groups(self, env: TrainingEnv, optimizer_steps: int) -> tuple[Group, ...]:
        anneal = self.config.get("anneal_learning_rate", False)
        return tuple(
            Group(
                self.make_learner(spaces.spec, spaces, env, optimizer_steps if anneal else 0),
                spaces.agents,
                self.config.get("share_parameters", False) and len(spaces.agents) > 1,
            )
            for spaces in env.groups
        )


class _Training:
    """One training as it goes on: the run, its state, and what has been recorded."""

    def __init__(
        self,
        algorithm: Algorithm,
        env: Any,  # noqa: ANN401
        prepared: TrainingEnv,
        run: LoggedRun,
        groups: tuple[Group, ...],
    ) -> None:
        self.algorithm = algorithm
        self.env = env
        self.prepared = prepared
        self.run = run
        self.groups = groups
        self.state: Any = None
        self.broken = False  # Whether the environments are in no state to go on from.
        limit = algorithm.config["history_limit"]
        seeds = range(len(run.seeds))
        self.progress = [Progress() for _ in seeds]
        self.history: list[deque[dict[str, Any]]] = [deque(maxlen=limit) for _ in seeds]
        self.metrics: list[dict[str, list[dict[str, float]]]] = [
            {agent: [] for group in groups for agent in group.agents} for _ in seeds
        ]

    def regroup(self, groups: tuple[Group, ...]) -> None:
        """Go on with other hyper-parameters over the same environments."""
        self.groups = groups
        self.run.groups = groups

    def take_over(self, saved: TrainResult) -> None:
        """Go on from a result of the same learner."""
        algorithm = self.algorithm
        if saved.learner != algorithm.NAME:
            raise ConfigError(
                f"This result was trained by {saved.learner or 'no learner'}; {algorithm.NAME} cannot go on "
                "from it."
            )
        theirs = [(group.agents, group.observation_space, group.action_space) for group in saved.spaces]
        ours = [(group.agents, group.observation_space, group.action_space) for group in self.prepared.groups]
        if theirs != ours:
            raise ConfigError(
                f"{algorithm.NAME} cannot go on from this result: it was trained with agents and spaces "
                f"{theirs}, and this environment has {ours}."
            )
        state = saved.state if isinstance(saved.state, LearnerState) else saved.state
        restored = restored_state(self.state, state)
        self.state = restored.replace(fault=Fault.none())
        self.progress = [saved.progress]
        self.history[0].extend(saved.history)
        for agent, rows in saved.metrics.items():
            self.metrics[0][agent] = list(rows)

    def record(self, log: UpdateLog, updates: int, steps: int) -> list[TrainEvent]:
        """Enter a log, each update of `steps` environment steps; returns the first seed's events."""
        events: list[TrainEvent] = []
        for index in range(len(self.run.seeds)):
            one = log if len(self.run.seeds) == 1 else jax.tree.map(lambda leaf, i=index: leaf[i], log)
            rows = [self._record_update(index, one, update, steps) for update in range(updates)]
            events = events or rows
        return events

    def result(self, index: int = 0) -> TrainResult:
        """Return everything trained so far, of one seed."""
        state: LearnerState = self.state
        if len(self.run.seeds) > 1:
            state = jax.tree.map(lambda leaf: leaf[index], state)
        # Copied, since the next chunk reuses the state's memory.
        state = jax.tree.map(_copy, state)
        states = agent_states(self.groups, state.agents)
        architecture = Architecture.of(self.algorithm.config)
        return TrainResult(
            history=list(self.history[index]),
            metrics={agent: list(rows) for agent, rows in self.metrics[index].items()},
            policies={
                agent: trained_adapter(
                    self.algorithm.ADAPTER, agent, spaces, architecture.network(spaces.spec), states[agent]
                )
                for spaces in self.prepared.groups
                for agent in spaces.agents
            },
            agent_states=states,
            learner=self.algorithm.NAME,
            config=self.algorithm.config,
            seed=self.run.seeds[index],
            progress=self.progress[index],
            spaces=self.prepared.groups,
            state=state,
        )

    def _record_update(self, index: int, log: UpdateLog, update: int, steps: int) -> TrainEvent:
        row: UpdateLog = jax.tree.map(lambda leaf: leaf[update : update + 1], log)
        before, copies = self.progress[index], self.run.copies
        names = tuple(group.agents for group in self.groups)
        episodes = finished_episodes(row, 1, names, copies)
        for number, episode in enumerate(episodes):
            episode["episode"] = before.episodes + number
            episode["start_step"] += before.steps
            episode["end_step"] = min(episode["end_step"] + before.steps, before.steps + steps)
        progress = Progress(before.updates + 1, before.steps + steps, before.episodes + len(episodes))
        metrics = update_metrics(self.groups, row, self.prepared.has_costs)
        for agent, numbers in metrics.items():
            self.algorithm.watch(agent, numbers)
            numbers |= {"update": float(progress.updates), "steps": float(progress.steps)}
            self.metrics[index][agent].append(numbers)
        self.history[index].extend(episodes)
        self.progress[index] = progress
        return TrainEvent(progress, metrics, episodes, partial(self.result, index))


def update_metrics(groups: tuple[Group, ...], log: UpdateLog, has_costs: bool) -> dict[str, dict[str, float]]:
    """Return each agent's metrics of the one update that a log holds."""
    metrics: dict[str, dict[str, float]] = {}
    sums = jax.tree.map(lambda leaf: leaf[0], log.sums)
    for index, group in enumerate(groups):
        means = sums.means(index, costs=has_costs)
        if log.shield_rates[index] is not None:
            means["train/shield_rate"] = np.asarray(log.shield_rates[index])[0]
        for place, agent in enumerate(group.agents):
            metrics[agent] = {
                name.removeprefix("train/"): float(value if np.ndim(value) == 0 else value[place])
                for name, value in means.items()
            }
    return metrics


def named_results(
    groups: tuple[Group, ...], results: list[EpisodeResults]
) -> dict[str, dict[str, np.ndarray]]:
    """Return evaluation results by agent, `[..., episodes]` each."""
    named: dict[str, dict[str, np.ndarray]] = {}
    for group, result in zip(groups, results, strict=True):
        for place, agent in enumerate(group.agents):
            fields = {name: value for name, value in result._asdict().items() if value is not None}
            named[agent] = {
                name: np.asarray(value) if group.single else np.asarray(value)[..., place, :]
                for name, value in fields.items()
            }
    return named


def _take_steps(training: _Training, total: int, callbacks: tuple[Callback, ...]) -> None:
    """Advance by exactly `total` environment steps, unless a callback stops earlier."""
    try:
        _advance(training, total, callbacks)
    except NonFiniteError:
        training.state = training.run.faulted.replace(fault=_no_fault(training.run))
        training.broken = not training.prepared.compiled
        raise


def _advance(training: _Training, total: int, callbacks: tuple[Callback, ...]) -> None:
    copies, length = training.run.copies, training.algorithm.config["rollout_length"]
    whole, rest = divmod(total, copies * length)
    chunk = 1 if callbacks else training.run.capacity
    while whole > 0:
        updates = min(chunk, whole)
        training.state, log = training.run.advance(training.state, updates)
        whole -= updates
        if _stopped(callbacks, training.record(log, updates, copies * length)):
            return
    if rest:
        steps = math.ceil(rest / copies)
        training.state, log = training.run.finish(training.state, steps, steps * copies - rest)
        _stopped(callbacks, training.record(log, 1, rest))


def _no_fault(run: LoggedRun) -> Fault:
    fault = Fault.none()
    seeds = len(run.seeds)
    return fault if seeds == 1 else jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (seeds,)), fault)


def _stopped(callbacks: tuple[Callback, ...], events: list[TrainEvent]) -> bool:
    """Tell every callback of every event; whether one of them wants to stop."""
    return any([callback(event) is True for event in events for callback in callbacks])


def _copy(leaf: Any) -> Any:  # noqa: ANN401
    return jnp.copy(leaf) if isinstance(leaf, jax.Array) else np.copy(leaf)


def _optimizer_steps_of(saved: TrainResult) -> int:
    first = saved.agent_states[next(iter(saved.agent_states))]
    steps = first["optimizer_steps"] if isinstance(first, dict) else first.optimizer_steps
    return int(steps)


def _checked_steps(total_timesteps: Any, owner: str) -> int:  # noqa: ANN401
    total = whole_number(total_timesteps)
    if total is None or total < 0:
        raise ConfigError(
            f"{owner}.train needs total_timesteps as a whole number >= 0, got {total_timesteps!r}."
        )
    return total


def _checked_seed(seed: Any, owner: str) -> int:  # noqa: ANN401
    number = whole_number(seed)
    if number is None or not 0 <= number <= LARGEST_SEED:
        raise ConfigError(f"{owner} needs a seed in [0, {LARGEST_SEED}], got {seed!r}.")
    return number
