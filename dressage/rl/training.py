"""One training as it goes on: its run and state, what has been recorded, and what it went on from."""

import dataclasses
import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from dressage.errors import ConfigError, NonFiniteError
from dressage.learning.architecture import Architecture
from dressage.learning.evaluation import EpisodeResults
from dressage.learning.group_spaces import GroupSpaces
from dressage.learning.groups import Group
from dressage.learning.logged_run import LoggedRun
from dressage.learning.records import Fault, LearnerState
from dressage.learning.update_log import UpdateLog, finished_episodes
from dressage.rl.adapters import PolicyAdapter, trained_adapter
from dressage.rl.environments import TrainingEnv
from dressage.rl.results import Progress, TrainResult, agent_states, restored_state


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


class Owner(Protocol):
    """What a training needs to know of the learner that it belongs to.

    Attributes:
        NAME: What error texts and files call it.
        ADAPTER: The class of its policies.
        config: Its checked options.
    """

    @property
    def NAME(self) -> str: ...  # noqa: D102 (the learners' own spelling)

    @property
    def ADAPTER(self) -> type[PolicyAdapter]: ...  # noqa: D102

    config: dict[str, Any]

    def watch(self, metrics: dict[str, dict[str, float]]) -> None:
        """Look at an agent's metrics of one update."""
        ...


class Training:
    """One training as it goes on.

    Attributes:
        algorithm: The learner.
        env: What the user gave.
        prepared: The same, prepared for training.
        run: What collects experience and learns.
        groups: The agents and their learners.
        state: The state of training; with several seeds its leaves have an axis of them.
        closed: Whether the run cannot go on: to go on needs a new one.
        restarts: Whether the environments' state is of no use: to go on, they start anew.
    """

    def __init__(
        self,
        algorithm: Owner,
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
        self.closed = False
        self.restarts = False
        limit = algorithm.config["history_limit"]
        seeds = range(len(run.seeds))
        self.progress = [Progress(episode_starts=(0,) * run.copies) for _ in seeds]
        self.history: list[deque[dict[str, Any]]] = [deque(maxlen=limit) for _ in seeds]
        self.metrics: list[dict[str, list[dict[str, float]]]] = [
            {agent: [] for group in groups for agent in group.agents} for _ in seeds
        ]

    def close(self) -> None:
        """Close the environments; what has been recorded stays."""
        self.run.close()
        self.closed = True

    def regroup(self, groups: tuple[Group, ...]) -> None:
        """Go on with other hyper-parameters over the same environments."""
        self.groups = groups
        self.run.groups = groups

    def take_over(self, saved: TrainResult, *, anew: bool) -> None:
        """Go on from a result, of which `check_origin` has approved.

        Args:
            saved: The result.
            anew: Whether its environments are in a state of no use.
        """
        fresh: LearnerState = self.state
        state = restored_state(fresh, saved.state).replace(fault=Fault.none())
        if saved.config.get("learning_rate") != self.algorithm.config.get("learning_rate"):
            agents = zip(state.agents, fresh.agents, strict=True)
            rates = tuple(agent.replace(learning_rate=one.learning_rate) for agent, one in agents)
            state = state.replace(agents=rates)
        progress = saved.progress
        if anew or not self.run.exact_resume:
            state = self.run.restart(state)
            progress = dataclasses.replace(progress, episode_starts=(progress.steps,) * self.run.copies)
        self.state = state
        self.progress = [progress]
        whole = self.algorithm.config["rollout_length"] * int(state.updates)
        self.run.shortfall = whole - -(-progress.steps // self.run.copies)
        self.history[0].extend(saved.history)
        for agent, rows in saved.metrics.items():
            self.metrics[0][agent] = list(rows)

    def go_back(self) -> None:
        """Return to before the rollout that gave a number that is not finite; updates before it count."""
        faulted = self.run.faulted
        if faulted.log is not None and faulted.sound > 0:
            self.record(faulted.log, faulted.sound, self.run.copies * self.algorithm.config["rollout_length"])
        self.state = faulted.state.replace(fault=_no_fault(self.run))
        self.restarts = True

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
        before = self.progress[index]
        names = tuple(group.agents for group in self.groups)
        episodes = finished_episodes(row, 1, names, self.run.copies)
        starts = list(before.episode_starts)
        for number, episode in enumerate(episodes):
            end = min(episode["end_step"] + before.steps, before.steps + steps)
            copy = episode["env_index"]
            episode |= {"episode": before.episodes + number, "start_step": starts[copy], "end_step": end}
            starts[copy] = end
        progress = Progress(
            before.updates + 1, before.steps + steps, before.episodes + len(episodes), tuple(starts)
        )
        metrics = update_metrics(self.groups, row, self.prepared.has_costs)
        self.algorithm.watch(metrics)
        for agent, numbers in metrics.items():
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


def check_origin(
    saved: TrainResult, owner: str, config: dict[str, Any], groups: tuple[GroupSpaces, ...]
) -> None:
    """Refuse to go on from a result that another learner made, or that other spaces or networks need.

    Raises:
        ConfigError: The text names what differs.
    """
    if saved.learner != owner:
        raise ConfigError(
            f"This result was trained by {saved.learner or 'no learner'}; {owner} cannot go on from it."
        )
    check_same_spaces(saved.spaces, groups, f"{owner} cannot go on from this result")
    if Architecture.of(saved.config) != Architecture.of(config):
        raise ConfigError(
            f"{owner} cannot go on from this result: its networks are {Architecture.of(saved.config)}, and "
            f"these options make {Architecture.of(config)}."
        )


def check_same_spaces(there: Sequence[GroupSpaces], here: Sequence[GroupSpaces], refusal: str) -> None:
    """Refuse an environment with other agents or spaces than those that were trained with.

    Args:
        there: The spaces that were trained with.
        here: Those of the environment.
        refusal: How the error text begins.

    Raises:
        ConfigError: The text names the agent and both its spaces, or both orders of the agents.
    """
    theirs = {agent: _spaces(group) for group in there for agent in group.agents}
    ours = {agent: _spaces(group) for group in here for agent in group.agents}
    differ = [agent for agent in theirs | ours if theirs.get(agent) != ours.get(agent)]
    if differ:
        raise ConfigError(
            f"{refusal}: agent {differ[0]!r} has {_words(theirs.get(differ[0]))} there and "
            f"{_words(ours.get(differ[0]))} in this environment."
        )
    # States go by place: the same agents in another order would get one another's.
    if list(theirs) != list(ours):
        raise ConfigError(
            f"{refusal}: the agents' order is {', '.join(theirs)} there and {', '.join(ours)} in this "
            "environment."
        )


def _spaces(group: GroupSpaces) -> tuple[Any, Any]:
    return group.observation_space, group.action_space


def _words(spaces: tuple[Any, Any] | None) -> str:
    return "no part" if spaces is None else f"observations in {spaces[0]} and actions in {spaces[1]}"


def take_steps(training: Training, total: int, callbacks: tuple[Callback, ...]) -> None:
    """Advance by exactly `total` environment steps, unless a callback stops earlier.

    Raises:
        NonFiniteError: If the environment gave a number that is not finite.
    """
    copies, length = training.run.copies, training.algorithm.config["rollout_length"]
    whole, rest = divmod(total, copies * length)
    chunk = 1 if callbacks else training.run.capacity
    while whole > 0:
        updates = min(chunk, whole)
        log = _moved(training, partial(training.run.advance, updates=updates))
        whole -= updates
        if _stopped(callbacks, training.record(log, updates, copies * length)):
            return
    if rest:
        steps = math.ceil(rest / copies)
        log = _moved(training, partial(training.run.finish, steps=steps, surplus=steps * copies - rest))
        _stopped(callbacks, training.record(log, 1, rest))


def _moved(training: Training, advance: Callable[..., tuple[LearnerState, UpdateLog]]) -> UpdateLog:
    """Move the state on; what stops that leaves environments behind in the middle of a rollout."""
    try:
        training.state, log = advance(training.state)
    except NonFiniteError:
        training.close()
        training.go_back()
        raise
    except BaseException:
        training.close()
        training.restarts = True
        raise
    return log


def _no_fault(run: LoggedRun) -> Fault:
    fault = Fault.none()
    seeds = len(run.seeds)
    return fault if seeds == 1 else jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (seeds,)), fault)


def _stopped(callbacks: tuple[Callback, ...], events: list[TrainEvent]) -> bool:
    """Tell every callback of every event; whether one of them wants to stop."""
    return any([callback(event) is True for event in events for callback in callbacks])


def _copy(leaf: Any) -> Any:  # noqa: ANN401
    return jnp.copy(leaf) if isinstance(leaf, jax.Array) else np.copy(leaf)
