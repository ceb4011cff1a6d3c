"""Owns how tasks are listed."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dressage.cli.known_algorithms import ALGORITHMS
from dressage.envs import PREFIXES, BaseEnv, MultiAgentEnv, MultiAgentVectorEnv, VectorEnv, make, tasks
from dressage.envs.registry import SHIPPED
from dressage.envs.spaces import Discrete, MultiDiscrete, Space, as_space


def print_tasks() -> None:
    """Print the built-in tasks with their spaces, and how to name others."""
    console = Console()
    heads = ("task", "observation", "action", "longest episode", "what is to be done")
    built_in = Table(*heads, box=None, header_style="bold", pad_edge=False)
    for name in tasks():
        built_in.add_row(name, *map(escape, _described(name)))
    console.print(built_in, highlight=False)
    console.print()
    others = Table("prefix", "what it reaches", box=None, header_style="bold", pad_edge=False)
    for prefix, meaning in PREFIXES.items():
        others.add_row(f"{prefix}:", escape(meaning))
    console.print(others, highlight=False)


def _described(name: str) -> tuple[str, ...]:
    env = make(name)
    assert isinstance(env, BaseEnv | MultiAgentEnv), "what comes with dressage is functional"
    presets = [f"Preset of {a.name}: {_joined(a.presets[name])}." for a in ALGORITHMS if name in a.presets]
    meaning = " ".join([SHIPPED[name].help, *presets])
    return *_spaces(env), f"{env.max_steps:,} steps", meaning


def _joined(preset: Mapping[str, Any]) -> str:
    return " ".join(f"{option}={value}" for option, value in preset.items())


def _spaces(env: BaseEnv | MultiAgentEnv) -> tuple[str, str]:
    if isinstance(env, BaseEnv):
        one = VectorEnv(env, 1)
        return _space(one.observation_space), _space(one.action_space)
    many = MultiAgentVectorEnv(env, 1)
    heads = [(agents[0], f"{len(agents)} x " if len(agents) > 1 else "") for agents in many.groups]
    observed = [number + _space(as_space(many.observation_space(agent))) for agent, number in heads]
    acted = [number + _space(as_space(many.action_space(agent))) for agent, number in heads]
    return ", ".join(observed), ", ".join(acted)


def _space(space: Space) -> str:
    if isinstance(space, Discrete):
        return f"Discrete({space.n})"
    if isinstance(space, MultiDiscrete):
        return f"MultiDiscrete({list(space.nvec)})"
    return f"Box{space.shape}"
