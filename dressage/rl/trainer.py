"""A run of a multi-agent learner that advances in chunks, over one or more seeds."""

import dataclasses
import math
from typing import Any

import jax
import numpy as np

from dressage.equations.trust_region import StepCase
from dressage.errors import ConfigError
from dressage.learning.architecture import Architecture
from dressage.learning.evaluation import Evaluation
from dressage.learning.groups import Group
from dressage.learning.logged_run import LoggedRun
from dressage.learning.records import Fault, LearnerState
from dressage.rl.adapters import trained_adapter
from dressage.rl.algorithm import Algorithm
from dressage.rl.environments import TrainingEnv
from dressage.rl.fine_tuning import check_fits, start_from
from dressage.rl.policy_set import PolicySet
from dressage.rl.results import agent_states
from dressage.rl.training import named_results, update_metrics

Numbers = dict[str, np.ndarray]


class MultiAgentTrainer:
    """One run of a learner; its state is what a checkpoint holds.

    Attributes:
        learner: What trains.
        num_updates: Updates of the whole run.
    """

    def __init__(
        self,
        learner: Algorithm,
        env: Any,  # noqa: ANN401 (see `Algorithm.train`)
        total_timesteps: int,
        seeds: tuple[int, ...] = (0,),
        eval_episodes: int = 32,
    ) -> None:
        """Prepare a run; nothing is compiled.

        Args:
            learner: What trains.
            env: As in `Algorithm.train`.
            total_timesteps: Environment steps of each seed, at least 1; rounded up to whole updates, so that
                one program serves the whole run.
            seeds: Trained side by side: by one program over a functional environment, in turn on the host.
            eval_episodes: Episodes of each evaluation; 0 for none.

        Raises:
            DressageError: If options, environment and seeds do not fit together.
        """
        if not seeds:
            raise ConfigError("A run needs at least one seed, got none.")
        self.learner = learner
        self._prepared: TrainingEnv = learner.prepare(env)
        self.num_updates = math.ceil(total_timesteps / self.steps_per_update)
        steps = self.num_updates * self.steps_per_update
        self._groups: tuple[Group, ...] = learner.make_groups(self._prepared, steps)
        together = [seeds] if self._prepared.compiled else [(seed,) for seed in seeds]
        self._runs: list[LoggedRun] = [self._prepared.make_run(self._groups, part) for part in together]
        self._seeds = seeds
        self._eval_episodes = eval_episodes

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that are trained side by side."""
        return self._seeds

    @property
    def steps_per_update(self) -> int:
        """Environment steps of one update of one seed."""
        return self._prepared.copies * int(self.learner.config["rollout_length"])

    @property
    def exact_resume(self) -> bool:
        """Whether a checkpoint holds all that the rest of the run depends on."""
        return all(run.exact_resume for run in self._runs)

    @property
    def agents(self) -> tuple[str, ...]:
        """All agents, group by group."""
        return tuple(agent for group in self._groups for agent in group.agents)

    def init(self) -> tuple[LearnerState, ...]:
        """Return the state before the first update."""
        return tuple(run.init() for run in self._runs)

    def advance(
        self, state: tuple[LearnerState, ...], updates: int
    ) -> tuple[tuple[LearnerState, ...], Numbers]:
        """Make updates; the state given is used up.

        Returns:
            The state after, and means over the updates, `[K]` by name: `train/NAME` over all agents and
            `train/NAME/AGENT` of each.

        Raises:
            NonFiniteError: If the environment gave a number that is not finite.
        """
        advanced = [self._advance(run, one, updates) for run, one in zip(self._runs, state, strict=True)]
        rows = [row for _, rows in advanced for row in rows]
        return tuple(after for after, _ in advanced), _by_seed(rows)

    def evaluate(self, state: tuple[LearnerState, ...]) -> Numbers:
        """Play evaluation episodes with the most likely actions, changing nothing.

        Returns:
            `eval/returns`, the mean over the agents, `eval/lengths` and `eval/finished`, `[K, E]` each, and
            `eval/returns/AGENT` of each agent, likewise `eval/costs` where there are costs.
        """
        if self._eval_episodes == 0:
            return {}
        rows: list[Numbers] = []
        for run, one in zip(self._runs, state, strict=True):
            named = named_results(self._groups, run.evaluate(one, self._eval_episodes, Evaluation()))
            rows.append(_evaluation(named, costs=self._prepared.has_costs))
        return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}

    def updates_done(self, state: tuple[LearnerState, ...]) -> int:
        """Return the number of updates behind a state."""
        return int(np.max(state[0].updates))

    def steps_done(self, state: tuple[LearnerState, ...]) -> int:
        """Return the environment steps behind a state, of each seed."""
        return self.updates_done(state) * self.steps_per_update

    def check_start(self, policies: PolicySet) -> None:
        """Refuse policies that training cannot go on with.

        Raises:
            ConfigError: If agents, spaces or networks differ; the text names what.
        """
        check_fits(policies, self._prepared.groups, self.learner.config)

    def start_from(
        self, state: tuple[LearnerState, ...], policies: PolicySet, *, keep_statistics: bool = True
    ) -> tuple[LearnerState, ...]:
        """Put the policies of all agents into a fresh state, to go on training them.

        Critics of costs, multipliers and optimisers begin anew: no policy's file holds them.

        Args:
            state: What `init` returned; it is used up.
            policies: Made for the same spaces, with networks as the options say.
            keep_statistics: Whether their observation statistics are taken over; otherwise they begin anew.

        Raises:
            ConfigError: If agents, spaces or networks differ; the text names what.
        """
        self.check_start(policies)
        given = dataclasses.replace(policies, config=self.learner.config).agent_states(self._prepared.groups)
        return tuple(start_from(one, given, keep_statistics=keep_statistics) for one in state)

    def policy(self, state: tuple[LearnerState, ...], seed_index: int = 0) -> PolicySet:
        """Return the policies of all agents of one seed."""
        one = state[0] if self._prepared.compiled else state[seed_index]
        if self._prepared.compiled and len(self._seeds) > 1:
            one = jax.tree.map(lambda leaf: leaf[seed_index], one)
        states = agent_states(self._groups, one.agents)
        architecture = Architecture.of(self.learner.config)
        policies = {
            agent: trained_adapter(
                self.learner.ADAPTER, agent, spaces, architecture.network(spaces.spec), states[agent]
            )
            for spaces in self._prepared.groups
            for agent in spaces.agents
        }
        return PolicySet(policies, self.learner.NAME, self.learner.config)

    def _advance(
        self, run: LoggedRun, state: LearnerState, updates: int
    ) -> tuple[LearnerState, list[Numbers]]:
        """Advance one run; returns its state and, for each of its seeds, the means over the updates."""
        rows: list[list[dict[str, dict[str, float]]]] = [[] for _ in run.seeds]
        while updates > 0:
            count = min(updates, run.capacity)
            state, log = run.advance(state, count)
            self._note(rows, run, log, count)
            updates -= count
        return state, [_means(one) for one in rows]

    def _note(self, sums: list[Any], run: LoggedRun, log: Any, count: int) -> None:  # noqa: ANN401
        for index, rows in enumerate(sums):
            one = log if len(run.seeds) == 1 else jax.tree.map(lambda leaf, i=index: leaf[i], log)
            for update in range(count):
                row = jax.tree.map(lambda leaf, u=update: leaf[u : u + 1], one)
                metrics = update_metrics(self._groups, row, self._prepared.has_costs)
                self.learner.watch(metrics)
                rows.append({agent: _cases_apart(found) for agent, found in metrics.items()})


def play_policies(
    learner: Algorithm,
    env: Any,  # noqa: ANN401
    policies: PolicySet,
    episodes: int,
    seed: int,
    *,
    stochastic: bool,
) -> dict[str, dict[str, np.ndarray]]:
    """Play one episode in each of several copies with policies that were trained before.

    Args:
        learner: One with the options that the policies were trained with.
        env: As in `Algorithm.train`; on the host a function that makes an environment.
        policies: Act.
        episodes: How many, at least 1.
        seed: Draws initial states, and actions where they are sampled.
        stochastic: Whether actions are sampled.

    Returns:
        For each agent `returns`, `costs`, `lengths` and `finished`, `[episodes]` each.

    Raises:
        ConfigError: If the environment has other spaces than the policies were trained in.
    """
    prepared = learner.prepare(env)
    policies.check_spaces(prepared.groups)
    groups = learner.make_groups(prepared, 0)
    run = prepared.make_run(groups, (seed,))
    agents = policies.agent_states(prepared.groups)
    state = LearnerState(agents, (), (), jax.random.key(seed), jax.numpy.int32(0), Fault.none())
    try:
        results = run.evaluate(state, episodes, Evaluation(stochastic, seed))
    finally:
        run.close()
    return named_results(groups, results)


def _evaluation(named: dict[str, dict[str, np.ndarray]], *, costs: bool) -> Numbers:
    """Turn results by agent `[..., E]` into metrics `[K, E]`."""
    first = next(iter(named.values()))
    metrics = {
        "eval/returns": np.atleast_2d(np.mean([one["returns"] for one in named.values()], axis=0)),
        "eval/lengths": np.atleast_2d(np.max([one["lengths"] for one in named.values()], axis=0)),
        "eval/finished": np.atleast_2d(first["finished"]),
    }
    if costs:
        metrics["eval/costs"] = np.atleast_2d(np.mean([one["costs"] for one in named.values()], axis=0))
    if len(named) == 1:
        return metrics
    for agent, one in named.items():
        metrics[f"eval/returns/{agent}"] = np.atleast_2d(one["returns"])
        if costs:
            metrics[f"eval/costs/{agent}"] = np.atleast_2d(one["costs"])
    return metrics


def _cases_apart(metrics: dict[str, float]) -> dict[str, float]:
    """Turn the number of a trust-region case into one flag a case, whose means are shares of updates."""
    if "case" not in metrics:
        return metrics
    flags = {f"case_{case.name.lower()}": float(metrics["case"] == case) for case in StepCase}
    return {name: value for name, value in metrics.items() if name != "case"} | flags


def _means(rows: list[dict[str, dict[str, float]]]) -> Numbers:
    """Average the metrics of several updates: over all agents, and for each agent."""
    means: Numbers = {}
    agents = list(rows[0])
    for name in rows[0][agents[0]]:
        table = np.array([[row[agent][name] for agent in agents] for row in rows])  # [updates, agents]
        weights = np.array([[_weight(name, row[agent]) for agent in agents] for row in rows])
        if name == "episodes":
            weights = weights / len(rows)  # A number, not an average: over the updates it adds up.
        known = np.where(np.isnan(table), 0.0, weights)
        values = np.where(np.isnan(table), 0.0, table)
        means[f"train/{name}"] = _ratio((values * known).sum(), known.sum())
        if len(agents) > 1:
            by_agent = zip(agents, (values * known).sum(0), known.sum(0), strict=True)
            means |= {f"train/{name}/{agent}": _ratio(total, weight) for agent, total, weight in by_agent}
    return means


def _weight(name: str, metrics: dict[str, float]) -> float:
    """Averages over episodes count by their episodes, all else by updates."""
    return metrics["episodes"] if name.startswith("episode_") else 1.0


def _ratio(total: float, weight: float) -> np.ndarray:
    return np.asarray(total / weight if weight > 0 else math.nan)


def _by_seed(rows: list[Numbers]) -> Numbers:
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}
