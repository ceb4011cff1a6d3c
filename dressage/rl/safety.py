"""The limit report: what evaluation episodes say of each agent's cost limit."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from scipy import stats

from dressage.config import whole_number
from dressage.errors import ConfigError
from dressage.rl.algorithm import Algorithm
from dressage.rl.limits import agent_limits

CONFIDENCE = 0.95
FEWEST_EPISODES = 2  # One says nothing of its own spread.


class Verdict(StrEnum):
    """What the episodes say of a limit, at 95 % confidence."""

    KEPT = "kept"
    NOT_KEPT = "not kept"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Interval:
    """A mean over episodes with the interval that holds the expectation at 95 % confidence.

    Attributes:
        mean: The mean.
        low: Lower end.
        high: Upper end.
    """

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class AgentSafety:
    """What the episodes say of one agent.

    Attributes:
        agent: Its name.
        limit: What an episode may cost.
        returns: Undiscounted return of an episode.
        costs: Undiscounted cost of an episode.
        unfinished: Episodes that did not end within the time given; they are in no mean.
        verdict: Whether the limit is kept.
    """

    agent: str
    limit: float
    returns: Interval
    costs: Interval
    unfinished: int
    verdict: Verdict


@dataclass(frozen=True)
class SafetyReport:
    """The limit report of one policy for every agent.

    Attributes:
        agents: One entry an agent.
        episodes: Episodes played.
    """

    agents: tuple[AgentSafety, ...]
    episodes: int

    @property
    def kept(self) -> bool:
        """Whether every limit is kept, at 95 % confidence each."""
        return all(agent.verdict is Verdict.KEPT for agent in self.agents)

    def rows(self) -> tuple[tuple[str, ...], ...]:
        """Return the report as a table of words, its head first."""
        head = ("agent", "return", "cost", "limit", "verdict", "episodes")
        return (head, *map(self._row, self.agents))

    def text(self) -> str:
        """Return the report for a terminal."""
        rows = self.rows()
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        return "\n".join([*lines, f"95 % intervals over {self.episodes} episodes with sampled actions."])

    def as_json(self) -> dict[str, Any]:
        """Return the report for a policy's metadata."""
        return {
            "episodes": self.episodes,
            "confidence": CONFIDENCE,
            "kept": self.kept,
            "agents": [dataclasses.asdict(agent) for agent in self.agents],
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "SafetyReport":
        """Rebuild a report from what `as_json` returned, also where JSON has null for what is not finite."""
        return cls(tuple(_agent_from(agent) for agent in fields["agents"]), fields["episodes"])

    def _row(self, one: AgentSafety) -> tuple[str, ...]:
        ended = f"{self.episodes - one.unfinished:,}"
        return (one.agent, _words(one.returns), _words(one.costs), f"{one.limit:g}", _sentence(one), ended)


def safety_report(
    algorithm: Algorithm,
    env: Any,  # noqa: ANN401 (see `Algorithm.train`)
    episodes: int = 1000,
    *,
    limits: float | Mapping[str, float] | None = None,
    seed: int = 0,
) -> SafetyReport:
    """Play whole episodes as in training, with sampled actions, and judge every agent's limit.

    A policy that keeps a limit is often a random one, so the most likely actions would say nothing of it.

    Args:
        algorithm: A learner that `train` has trained.
        env: What it was trained on; where that was the one `ParallelEnv` that there is, a function without
            arguments that makes one like it.
        episodes: At least 2; 1,000 or more narrow the intervals down.
        limits: What an episode may cost, for all or by agent; None takes the learner's own `cost_limit`.
        seed: Another one plays other episodes.

    Raises:
        ConfigError: If there is no limit to judge, the environment reports no costs, or an argument is not
            legal.
    """
    number = whole_number(episodes)
    if number is None or number < FEWEST_EPISODES:
        raise ConfigError(f"safety_report needs episodes >= {FEWEST_EPISODES}, got {episodes!r}.")
    asked = dict(limits) if isinstance(limits, Mapping) else limits
    limit = algorithm.config.get("cost_limit") if asked is None else asked
    if limit is None:
        raise ConfigError(f"{algorithm.NAME} has no cost_limit: say by `limits` what an episode may cost.")
    return judge_limits(algorithm.evaluate(env, number, stochastic=True, seed=seed), limit, algorithm.NAME)


def judge_limits(
    results: Mapping[str, Mapping[str, np.ndarray]],
    limit: float | dict[str, float],
    owner: str = "The policy",
) -> SafetyReport:
    """Judge limits by episodes that were played.

    Args:
        results: For each agent `returns`, `costs` and `finished`, `[episodes]` each, of one policy.
        limit: What an episode may cost, for all or by agent.
        owner: Whose they are, for error texts.

    Raises:
        ConfigError: If costs are missing, limits and agents do not fit together, or the results are of
            several policies.
    """
    limits = agent_limits({"cost_limit": limit}, tuple(results), owner)
    judged = tuple(_judge(agent, results[agent], limits[agent], owner) for agent in results)
    return SafetyReport(judged, len(next(iter(results.values()))["finished"]))


def _judge(agent: str, results: Mapping[str, np.ndarray], limit: float, owner: str) -> AgentSafety:
    if "costs" not in results:
        raise ConfigError(f"The environment of {owner} reports no cost of agent {agent!r}: wrap one on.")
    finished = np.asarray(results["finished"], bool)
    if finished.ndim != 1:
        raise ConfigError(f"A limit is judged policy by policy; got results of shape {finished.shape}.")
    returns, costs = (_interval(np.asarray(results[name])[finished]) for name in ("returns", "costs"))
    unfinished = int((~finished).sum())
    return AgentSafety(agent, limit, returns, costs, unfinished, _verdict(costs, limit, unfinished))


def _interval(values: np.ndarray) -> Interval:
    """Student's interval for the mean of independent episodes."""
    values = values.astype(np.float64)
    if len(values) < FEWEST_EPISODES:
        return Interval(float(values.mean()) if len(values) else np.nan, -np.inf, np.inf)
    mean = float(values.mean())
    error = float(values.std(ddof=1) / np.sqrt(len(values)))
    reach = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * error
    return Interval(mean, mean - reach, mean + reach)


def _verdict(costs: Interval, limit: float, unfinished: int) -> Verdict:
    """Episodes that did not end may cost anything, so nothing is certain beside them."""
    if unfinished:
        return Verdict.UNDECIDED
    if costs.high <= limit:
        return Verdict.KEPT
    return Verdict.NOT_KEPT if costs.low > limit else Verdict.UNDECIDED


def _agent_from(fields: Mapping[str, Any]) -> AgentSafety:
    intervals = {name: _interval_from(fields[name]) for name in ("returns", "costs")}
    return AgentSafety(**{**fields, **intervals, "verdict": Verdict(fields["verdict"])})


def _interval_from(fields: Mapping[str, float | None]) -> Interval:
    unknown = {"mean": math.nan, "low": -math.inf, "high": math.inf}
    numbers = {name: fields[name] for name in unknown}
    return Interval(**{name: unknown[name] if one is None else one for name, one in numbers.items()})


def _words(interval: Interval) -> str:
    return f"{interval.mean:.4g} [{interval.low:.4g}, {interval.high:.4g}]"


def _sentence(agent: AgentSafety) -> str:
    return f"{agent.verdict} ({agent.unfinished} episodes did not end)" if agent.unfinished else agent.verdict
