"""Environments: the functional interface, spaces, wrappers, the shipped suite and adapters to others."""

from typing import Any

from dressage.envs import adapters, registry, spaces, suite, wrappers
from dressage.envs.adapters.brax import from_brax
from dressage.envs.adapters.cost_wrapper import CostWrapper, with_cost
from dressage.envs.adapters.gymnasium import HostStep, HostTask, HostVectorEnv, from_gymnasium
from dressage.envs.adapters.gymnasium_face import to_gymnasium_env
from dressage.envs.adapters.gymnax import from_gymnax
from dressage.envs.adapters.jaxmarl import from_jaxmarl
from dressage.envs.adapters.parallel_face import to_parallel_env
from dressage.envs.adapters.pettingzoo import ParallelTask, from_parallel_env
from dressage.envs.adapters.tuple_space import from_tuple_space
from dressage.envs.checks import check_environment
from dressage.envs.cmdp import CMDPSolution, FiniteCMDP, solve_cmdp
from dressage.envs.costs import CostFromInfo, CostStep
from dressage.envs.functional import BaseEnv, Environment, Step
from dressage.envs.multi_agent import AgentStep, MultiAgentEnv, MultiAgentStep
from dressage.envs.multi_agent_checks import check_multi_agent_environment
from dressage.envs.registry import PREFIXES, Task, tasks
from dressage.envs.rendering import can_render, render
from dressage.envs.wrappers import MultiAgentVectorEnv, VectorEnv

__all__ = [
    "PREFIXES",
    "AgentStep",
    "BaseEnv",
    "CMDPSolution",
    "CostFromInfo",
    "CostStep",
    "CostWrapper",
    "Environment",
    "FiniteCMDP",
    "HostStep",
    "HostTask",
    "HostVectorEnv",
    "MultiAgentEnv",
    "MultiAgentStep",
    "MultiAgentVectorEnv",
    "ParallelTask",
    "Step",
    "VectorEnv",
    "adapters",
    "can_render",
    "check_environment",
    "check_multi_agent_environment",
    "from_brax",
    "from_gymnasium",
    "from_gymnax",
    "from_jaxmarl",
    "from_parallel_env",
    "from_tuple_space",
    "make",
    "registry",
    "render",
    "solve_cmdp",
    "spaces",
    "suite",
    "tasks",
    "to_gymnasium_env",
    "to_parallel_env",
    "with_cost",
    "wrappers",
]


def make(name: str, **options: Any) -> Task:  # noqa: ANN401 (each task declares its own options)
    """Make a task by name.

    Args:
        name: One of `tasks()`, or `prefix:rest` with one of `PREFIXES`, for example `gymnax:Catch-bsuite`.
        **options: The task's own options, for example `make("pendulum", gravity=9.81, max_steps=100)`. They
            are open here because every task has others; the task refuses those that it does not know.

    Returns:
        A functional environment, a `BaseEnv` or a `MultiAgentEnv`; for `gymnasium:` a `HostTask`, for
        `pettingzoo:`, `lbforaging:` and `rware:` a `ParallelTask`.

    Raises:
        ConfigError: If the name or an option is unknown, or a value is out of its range.
        MissingExtraError: If the task needs a package that is not installed.
    """
    return registry.make_task(name, options)
