"""Owns how tasks are listed."""

from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dressage.cli.json_output import print_as_json
from dressage.cli.known_algorithms import ALGORITHMS
from dressage.envs import PREFIXES, BaseEnv, MultiAgentEnv, MultiAgentVectorEnv, VectorEnv, make, tasks
from dressage.envs.registry import Prefix, agent_kind, shipped_task
from dressage.envs.spaces import Discrete, MultiDiscrete, Space, as_space
from dressage.policy.torch_envs.catalog import PREFIX as TORCH
from dressage.policy.torch_envs.catalog import SHIPPED as TORCH_TASKS

TORCH_EXAMPLES = {
    "gymnasium": f"{TORCH}gymnasium:Pendulum-v1",
    "python": f"{TORCH}python:my_package:make, a function of a number of copies and a seed",
}


def print_tasks(*, as_json: bool) -> None:
    """Print the built-in tasks with their spaces and presets, and how to name others."""
    if as_json:
        shipped = {name: _described(name) for name in tasks()}
        prefixes = {name: {**vars(prefix), "kind": _kind(prefix)} for name, prefix in PREFIXES.items()}
        print_as_json({"tasks": shipped | _torch_tasks(), "prefixes": prefixes})
        return
    console = Console()
    built_in = _table("task", "kind", "what is to be done")
    for name in tasks():
        task = _described(name)
        built_in.add_row(name, task["kind"], escape("\n".join(_lines(task))))
    for name, task in _torch_tasks().items():
        built_in.add_row(name, task["kind"], escape(task["meaning"]))
    console.print(built_in, highlight=False)
    console.print()
    others = _table("prefix", "kind", "what it reaches")
    for name, prefix in PREFIXES.items():
        example = f"{prefix.help} For example {prefix.examples[0]}."
        others.add_row(f"{name}:", _kind(prefix), escape(example))
    for kind, example in TORCH_EXAMPLES.items():
        others.add_row(f"{TORCH}{kind}:", "torch", escape(f"For example {example}."))
    console.print(others, highlight=False)
    console.print(
        "\nmulti: several agents; host: stepped outside of compiled programs; torch: trained by rsl_rl",
        style="dim",
    )


def _torch_tasks() -> dict[str, Any]:
    return {task.name: {"kind": "torch", "meaning": task.help} for task in TORCH_TASKS.values()}


def _table(*heads: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for head in heads:
        table.add_column(head, overflow="fold", no_wrap=head != heads[-1])
    return table


def _described(name: str) -> dict[str, Any]:
    env = make(name)
    assert isinstance(env, BaseEnv | MultiAgentEnv), "what comes with dressage is functional"
    observed, acted = _spaces(env)
    return {
        "kind": agent_kind(env),
        "meaning": shipped_task(name).help,
        "observation": observed,
        "action": acted,
        "max_steps": env.max_steps,
        "presets": {a.name: dict(a.presets[name]) for a in ALGORITHMS if name in a.presets},
    }


def _lines(task: Mapping[str, Any]) -> Iterator[str]:
    yield task["meaning"]
    yield f"observes {task['observation']}, acts in {task['action']}, at most {task['max_steps']:,} steps"
    for algorithm, preset in task["presets"].items():
        yield f"preset of {algorithm}: " + " ".join(f"{name}={value}" for name, value in preset.items())


def _kind(prefix: Prefix) -> str:
    return " or ".join(prefix.kinds) + (", host" if prefix.on_host else "")


def _spaces(env: BaseEnv | MultiAgentEnv) -> tuple[str, str]:
    if isinstance(env, BaseEnv):
        one = VectorEnv(env, 1)
        return _space(one.observation_space), _space(one.action_space)
    many = MultiAgentVectorEnv(env, 1)
    heads = [(agents[0], f"{len(agents)} x " if len(agents) > 1 else "") for agents in many.groups]
    observed = [number + _space(many.observation_space(agent)) for agent, number in heads]
    acted = [number + _space(many.action_space(agent)) for agent, number in heads]
    return ", ".join(observed), ", ".join(acted)


def _space(space: Any) -> str:  # noqa: ANN401 (ours or Gymnasium's)
    if isinstance(space, gymnasium.spaces.Dict):
        return " + ".join(_space(as_space(part)) for part in space.spaces.values())
    return _plain(as_space(space))


def _plain(space: Space) -> str:
    if isinstance(space, Discrete):
        return f"Discrete({space.n})"
    if isinstance(space, MultiDiscrete):
        return f"MultiDiscrete({list(space.nvec)})"
    return f"Box{space.shape}"
