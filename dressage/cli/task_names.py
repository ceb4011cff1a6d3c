"""Owns what a task's name means on the command line: an environment of `dressage.envs`, or one in torch."""

from typing import Literal, TypeAlias

from dressage.envs import make
from dressage.envs.registry import AgentKind, Task, agent_kind
from dressage.policy.torch_envs.catalog import TorchTask, is_torch_task, torch_task

AnyTask: TypeAlias = "Task | TorchTask"
TaskKind: TypeAlias = AgentKind | Literal["torch"]
"""What trains a task: learners of one agent, of several, or those of rsl_rl."""


def open_task(name: str) -> AnyTask:
    """Return a task by its name.

    Raises:
        DressageError: If there is none of that name, or what it needs is not installed.
    """
    return torch_task(name) if is_torch_task(name) else make(name)


def task_kind(task: AnyTask) -> TaskKind:
    """Return what kind of algorithm trains a task."""
    return "torch" if isinstance(task, TorchTask) else agent_kind(task)


def environment_of(task: AnyTask) -> Task:
    """Return a task that is an environment of `dressage.envs`."""
    assert not isinstance(task, TorchTask), "algorithms are chosen by what the task has"
    return task
