"""Owns the list of algorithms, and which of them trains a task."""

from typing import Any

from dressage.cli.algorithm import Algorithm
from dressage.cli.many_agents import (
    ManyAgentsCPO,
    ManyAgentsICPO,
    ManyAgentsIPPO,
    ManyAgentsLagrangian,
    ManyAgentsParameterizedIPPO,
)
from dressage.cli.rsl_rl import RslRl
from dressage.cli.single_agent_ppo import SingleAgentPPO
from dressage.cli.task_names import AnyTask, TaskKind, task_kind
from dressage.config import suggest
from dressage.errors import ConfigError

ALGORITHMS: tuple[Algorithm[Any], ...] = (
    SingleAgentPPO(),
    ManyAgentsIPPO(),
    ManyAgentsParameterizedIPPO(),
    ManyAgentsLagrangian(),
    ManyAgentsCPO(),
    ManyAgentsICPO(),
    RslRl(),
)
"""The first that trains a kind of task is that kind's default."""

WORDS: dict[TaskKind, str] = {"single": "one agent", "multi": "several agents", "torch": "one agent in torch"}


def algorithm_named(name: str) -> Algorithm[Any]:
    """Return an algorithm by its name.

    Raises:
        ConfigError: If there is none of that name.
    """
    known = {algorithm.name: algorithm for algorithm in ALGORITHMS}
    if name not in known:
        raise ConfigError(
            f"There is no algorithm {name!r}.{suggest(name, known)} `dressage algorithms` lists them."
        )
    return known[name]


def algorithm_for(task_name: str, task: AnyTask, name: str | None) -> Algorithm[Any]:
    """Return the algorithm that trains a task.

    Args:
        task_name: The task's name, for the error's text.
        task: The task.
        name: The algorithm that was asked for; None for the task's default.

    Raises:
        ConfigError: If there is no algorithm of that name, or it does not train such tasks.
    """
    kind = task_kind(task)
    fitting = [algorithm for algorithm in ALGORITHMS if kind in (algorithm.trains, *algorithm.also_trains)]
    if name is None and fitting:
        return fitting[0]
    asked = None if name is None else algorithm_named(name)
    if asked in fitting:
        assert asked is not None, "None is not listed"
        return asked
    others = ", ".join(algorithm.name for algorithm in fitting)
    remedy = f"Train it by --algorithm {others}." if fitting else "No algorithm here trains such tasks yet."
    limit = "" if asked is None else f"; {asked.name} trains tasks of {WORDS[asked.trains]}"
    raise ConfigError(f"{task_name} has {WORDS[kind]}{limit}. {remedy}")
