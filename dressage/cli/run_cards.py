"""Owns the cards of the policies that a run trained: what goes in and out, and what they achieved."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from dressage.cli.task_names import AnyTask, open_task
from dressage.envs import BaseEnv
from dressage.export import Card, Score, Signal
from dressage.reporting.metric_rows import Row, costs_were_seen, episode_values, of_kind, read_rows
from dressage.reporting.run_folder import RunFolder, RunRecord
from dressage.reporting.seed_statistics import summarize_returns
from dressage.rl.safety import AgentSafety, Interval, SafetyReport
from dressage.shield import ShieldedEnv
from dressage.signals import Signal as Named
from dressage.signals import Signals


def cards_of(
    folder: RunFolder,
    record: RunRecord,
    index: int,
    agents: Sequence[str],
    steps: int | None,
    named: Signals | None,
) -> dict[str, Card]:
    """Write the cards of the policies of one seed of a run, by agent.

    Args:
        folder: The run directory.
        record: How the run was started.
        index: Which of its seeds.
        agents: Whose policies they are.
        steps: Environment steps of their training.
        named: The numbers of observation and action; None where nobody knows them.
    """
    task = open_task(record.task)
    observation, action = _signals(task, named) if named else ((), ())
    evaluations = of_kind(read_rows(folder.metrics), "eval")
    last = evaluations[-1] if evaluations else {}
    limited = record.options.get("cost_limit") is not None
    returns = _scores(last, "eval/returns", index, agents, steps)
    costs = _scores(last, "eval/costs", index, agents, steps)
    if not limited and not costs_were_seen(evaluations):
        costs = {}
    return {
        agent: Card(
            task=record.task,
            agent=agent,
            algorithm=record.algorithm,
            seed=record.seeds[index],
            training_steps=steps,
            control_period_s=named.control_period_s if named else None,
            observation=observation,
            action=action,
            returns=returns.get(agent),
            cost=costs.get(agent),
            note=_shield_note(task, agent),
        )
        for agent in agents
    }


def judged_cards(cards: Mapping[str, Card], limits: SafetyReport | None) -> dict[str, Card]:
    """Write return and cost of a limit report, and its verdicts, into the cards of its agents.

    Args:
        cards: By agent.
        limits: Of the same policies; None for those that were trained without a limit.
    """
    if limits is None:
        return dict(cards)
    agents = {one.agent: one for one in limits.agents if one.unfinished < limits.episodes}
    return {
        agent: _judged_card(card, agents[agent], limits.episodes) if agent in agents else card
        for agent, card in cards.items()
    }


def _judged_card(card: Card, one: AgentSafety, played: int) -> Card:
    episodes = played - one.unfinished
    cost = replace(_score(one.costs, episodes), limit=one.limit, verdict=one.verdict.value)
    return replace(card, returns=_score(one.returns, episodes), cost=cost)


def _score(interval: Interval, episodes: int) -> Score:
    low, high = (end if math.isfinite(end) else None for end in (interval.low, interval.high))
    return Score(interval.mean, low, high, episodes=episodes, sampled=True)


def _scores(row: Row, name: str, index: int, agents: Sequence[str], steps: int | None) -> dict[str, Score]:
    """Return what an evaluation says of each agent; nothing of those of whom it says nothing.

    Rows that were written before evaluations kept the episodes of each agent have the mean over the agents
    only; the score says then that it is one.
    """
    scores = {}
    for agent in agents:
        own = f"{name}/{agent}"
        found = own if own in row else name
        score = _score_of_episodes(episode_values(row, found)[index]) if found in row else None
        if score is not None:
            mean_of = len(agents) if found == name and len(agents) > 1 else None
            early = None if row["steps"] == steps else row["steps"]
            scores[agent] = replace(score, mean_of=mean_of, after_steps=early)
    return scores


def _score_of_episodes(values: np.ndarray) -> Score | None:
    """Summarise what episodes `[E]` gave with the most likely actions; None where none finished."""
    summary = summarize_returns(values)
    if not summary.episodes:
        return None
    low, high = (None if np.isnan(end) else float(end) for end in (summary.low, summary.high))
    return Score(summary.estimate, low, high, summary.deviation, summary.episodes, sampled=False)


def _shield_note(task: AnyTask, agent: str) -> str | None:
    """Say that an agent's actions are proposals, where the task corrects them."""
    if not isinstance(task, ShieldedEnv) or agent not in task.agents:
        return None
    shield = type(task.agents[agent].shield).__name__
    return (
        f"Without a shield: in the task a {shield} corrected the actions, which the file does not hold. "
        "Whatever acts with it must shield its actions too."
    )


def _signals(task: AnyTask, named: Signals) -> tuple[tuple[Signal, ...], tuple[Signal, ...]]:
    """Return the numbers of observation and action, with their bounds where the task has any."""
    if not isinstance(task, BaseEnv):
        return _bounded(named.observation, None), _bounded(named.action, None)
    state = task.reset(jax.random.key(0))[0]
    observation = _bounded(named.observation, task.observation_space(state))
    return observation, _bounded(named.action, task.action_space(state))


def _bounded(signals: Sequence[Named], space: Any) -> tuple[Signal, ...]:  # noqa: ANN401 (of either library)
    if not hasattr(space, "low"):
        return tuple(Signal(signal.name, signal.unit) for signal in signals)
    low, high = (np.broadcast_to(np.ravel(bound), len(signals)) for bound in (space.low, space.high))
    rows = zip(signals, low, high, strict=True)
    return tuple(Signal(signal.name, signal.unit, *map(_finite, bounds)) for signal, *bounds in rows)


def _finite(bound: Any) -> float | None:  # noqa: ANN401 (a number of any kind)
    return float(bound) if abs(float(bound)) < np.finfo(np.float32).max else None


def one_of(policies: Mapping[str, Any]) -> tuple[str, Any]:
    """Return the only agent and its policy."""
    ((agent, policy),) = policies.items()
    return agent, policy
