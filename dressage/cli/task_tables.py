"""Owns how tasks are listed."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dressage.cli.presets import preset_of
from dressage.envs import PREFIXES, BaseEnv, VectorEnv, make, tasks
from dressage.envs.registry import SHIPPED
from dressage.envs.spaces import Discrete, MultiDiscrete, Space


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
    assert isinstance(env, BaseEnv), "what comes with dressage is functional"
    copies = VectorEnv(env, 1)
    preset = " ".join(f"{option}={value}" for option, value in preset_of(name).items())
    meaning = SHIPPED[name].help + (f" Preset: {preset}." if preset else "")
    spaces = _space(copies.observation_space), _space(copies.action_space)
    return *spaces, f"{env.max_steps:,} steps", meaning


def _space(space: Space) -> str:
    if isinstance(space, Discrete):
        return f"Discrete({space.n})"
    if isinstance(space, MultiDiscrete):
        return f"MultiDiscrete({list(space.nvec)})"
    return f"Box{space.shape}"
