"""Making tasks by name: the shipped ones, those of other ecosystems, and the user's own."""

import dataclasses
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from dressage.config import Option, check_names, nearest_name, suggest
from dressage.envs.adapters.brax import from_brax
from dressage.envs.adapters.gymnax import from_gymnax
from dressage.envs.adapters.jaxmarl import from_jaxmarl
from dressage.envs.adapters.pettingzoo import ParallelTask, from_parallel_env
from dressage.envs.adapters.tuple_space import from_tuple_space
from dressage.envs.functional import BaseEnv
from dressage.envs.multi_agent import MultiAgentEnv
from dressage.envs.suite import (
    budget_bandit,
    cartpole,
    corridor,
    coupled_budget,
    crossing,
    pendulum,
    platoon,
    risk_ladder,
    safe_spread,
    shortcut_cmdp,
)
from dressage.errors import ConfigError

if TYPE_CHECKING:
    from dressage.envs.adapters.gymnasium import HostTask

Task: TypeAlias = "BaseEnv | MultiAgentEnv | HostTask | ParallelTask"
SingleAgentTask: TypeAlias = "BaseEnv | HostTask"
Options: TypeAlias = Mapping[str, Any]
AgentKind: TypeAlias = Literal["single", "multi"]
"""Whether a task has one agent or several."""


@dataclasses.dataclass(frozen=True)
class ShippedTask:
    """A task that comes with dressage.

    Attributes:
        build: The environment's class, whose fields are the options, or a function that takes them.
        options: Their declarations.
        help: One line that says what is to be done.
    """

    build: Callable[..., BaseEnv | MultiAgentEnv]
    options: tuple[Option, ...]
    help: str


SHIPPED = {
    "budget_bandit": ShippedTask(
        budget_bandit.BudgetBandit, budget_bandit.OPTIONS, "Take as much as a cost limit allows."
    ),
    "cartpole": ShippedTask(cartpole.CartPole, cartpole.OPTIONS, "Balance a pole on a cart; two actions."),
    "corridor": ShippedTask(
        corridor.Corridor, corridor.OPTIONS, "Agents leave a corridor before it falls in on them."
    ),
    "coupled_budget": ShippedTask(
        coupled_budget.CoupledBudget,
        coupled_budget.OPTIONS,
        "Two agents take together what a limit on the product of their takings allows.",
    ),
    "crossing": ShippedTask(
        crossing.Crossing, crossing.OPTIONS, "Robots change places across a circle and do not collide."
    ),
    "pendulum": ShippedTask(
        pendulum.Pendulum, pendulum.OPTIONS, "Swing up a rod and hold it there; one torque."
    ),
    "platoon": ShippedTask(
        platoon.Platoon, platoon.OPTIONS, "Cars keep a close but safe distance behind a leader."
    ),
    "risk_ladder": ShippedTask(
        risk_ladder.RiskLadder, risk_ladder.OPTIONS, "Climb fast, but do not fall; every risk is known."
    ),
    "safe_spread": ShippedTask(
        safe_spread.SafeSpread, safe_spread.OPTIONS, "Agents cover landmarks together and do not collide."
    ),
    "shortcut_cmdp": ShippedTask(
        shortcut_cmdp.ShortcutCMDP,
        shortcut_cmdp.OPTIONS,
        "Cross a grid through hazards or around them; the optimum under a limit is known.",
    ),
}

FROM_SHIELDS = {
    "shielded_crossing": "dressage.shield.tasks.crossing",
    "shielded_platoon": "dressage.shield.tasks.platoon",
    "shielded_risk_ladder": "dressage.shield.tasks.risk_ladder",
    "shielded_shortcut_cmdp": "dressage.shield.tasks.shortcut_cmdp",
}
"""Tasks that are put together above this package: the module whose `TASK` declares each.

They are imported by name when they are asked for, as those of `python:` are: shields know environments, and
environments know no shield.
"""


@dataclasses.dataclass(frozen=True)
class Prefix:
    """Where tasks come from that do not come with dressage; they are named `prefix:rest`.

    Attributes:
        help: One line that says what it reaches.
        examples: A few names.
        kinds: Whether its tasks have one agent or several.
        on_host: Whether they are stepped on the host, outside of compiled programs.
    """

    help: str
    examples: tuple[str, ...]
    kinds: tuple[AgentKind, ...]
    on_host: bool = False


PREFIXES = {
    "brax": Prefix(
        "A Brax environment by name (extra: envs).", ("brax:ant", "brax:hopper", "brax:fast"), ("single",)
    ),
    "gymnasium": Prefix(
        "A Gymnasium environment by id.",
        ("gymnasium:Acrobot-v1", "gymnasium:MountainCarContinuous-v0", "gymnasium:Hopper-v5"),
        ("single",),
        on_host=True,
    ),
    "gymnax": Prefix(
        "A gymnax environment by name (extra: envs).",
        ("gymnax:Catch-bsuite", "gymnax:Acrobot-v1", "gymnax:Breakout-MinAtar"),
        ("single",),
    ),
    "jaxmarl": Prefix(
        "A JaxMARL environment by name (extra: envs).",
        ("jaxmarl:MPE_simple_spread_v3", "jaxmarl:MPE_simple_tag_v3"),
        ("multi",),
    ),
    "lbforaging": Prefix(
        "Level-based foraging by id (extra: envs).",
        ("lbforaging:Foraging-8x8-2p-1f-v3", "lbforaging:Foraging-10x10-3p-3f-v3"),
        ("multi",),
        on_host=True,
    ),
    "pettingzoo": Prefix(
        "A module with a parallel_env (extra: envs).",
        ("pettingzoo:mpe2.simple_spread_v3", "pettingzoo:mpe2.simple_tag_v3"),
        ("multi",),
        on_host=True,
    ),
    "python": Prefix(
        "Your own: python:module:function calls a function that returns a BaseEnv or MultiAgentEnv.",
        ("python:my_task:make",),
        ("single", "multi"),
    ),
    "rware": Prefix(
        "A robotic warehouse by id (extra: envs).",
        ("rware:rware-tiny-2ag-v2", "rware:rware-small-4ag-v2"),
        ("multi",),
        on_host=True,
    ),
}


def tasks() -> tuple[str, ...]:
    """Return the names of the tasks that come with dressage; `PREFIXES` lists where others come from."""
    return tuple(sorted({**SHIPPED, **FROM_SHIELDS}))


def shipped_task(name: str) -> ShippedTask:
    """Return the declaration of one of `tasks()`: how it is made, its options and what is to be done."""
    if name in SHIPPED:
        return SHIPPED[name]
    declared: ShippedTask = importlib.import_module(FROM_SHIELDS[name]).TASK
    return declared


def make_task(name: str, options: Options) -> Task:
    """Make a task.

    Args:
        name: One of `tasks()`, or `prefix:rest` with one of `PREFIXES`.
        options: The task's options by name.

    Returns:
        A functional environment; for `gymnasium:` a `HostTask`, for `pettingzoo:`, `lbforaging:` and `rware:`
        a `ParallelTask`.

    Raises:
        ConfigError: If the name or an option is unknown, or a value is out of its range.
        MissingExtraError: If the task needs a package that is not installed.
    """
    if name in SHIPPED or name in FROM_SHIELDS:
        return _shipped(name, options)
    prefix, colon, rest = name.partition(":")
    makers: dict[str, Callable[[str, Options], Task]] = {
        "brax": _brax,
        "gymnasium": _gymnasium,
        "gymnax": _gymnax,
        "jaxmarl": _jaxmarl,
        "lbforaging": partial(_tuple_space, "lbforaging"),
        "pettingzoo": from_parallel_env,
        "python": _python,
        "rware": partial(_tuple_space, "rware"),
    }
    if not colon or prefix not in makers:
        raise ConfigError(_unknown(name))
    if not rest.strip():
        raise ConfigError(_nameless(prefix))
    return makers[prefix](rest, options)


def agent_kind(task: Task) -> AgentKind:
    """Whether a task has one agent or several."""
    return "multi" if isinstance(task, MultiAgentEnv | ParallelTask) else "single"


def _shipped(name: str, options: Options) -> BaseEnv | MultiAgentEnv:
    task = shipped_task(name)
    declared = {option.name: option for option in task.options}
    check_names(options, list(declared), name)
    return task.build(**{key: declared[key].check(value, name) for key, value in options.items()})


def _brax(name: str, options: Options) -> BaseEnv:
    check_names(options, ["max_steps", "backend"], f"brax:{name}")
    return from_brax(name, **options)


def _gymnax(name: str, options: Options) -> BaseEnv:
    env = from_gymnax(name)
    known = [field.name for field in dataclasses.fields(env.params)]
    check_names(options, ["max_steps", *known], f"gymnax:{name}")
    changed = {key: value for key, value in options.items() if key != "max_steps"}
    return from_gymnax(env.env, env.params.replace(**changed), max_steps=options.get("max_steps"))


def _jaxmarl(name: str, options: Options) -> MultiAgentEnv:
    rest = {key: value for key, value in options.items() if key != "max_steps"}
    return from_jaxmarl(name, rest, max_steps=options.get("max_steps"))


def _tuple_space(package: str, env_id: str, options: Options) -> ParallelTask:
    rest = {key: value for key, value in options.items() if key != "max_steps"}
    return from_tuple_space(f"{package}:{env_id}", rest, max_steps=options.get("max_steps"))


def _gymnasium(name: str, options: Options) -> "HostTask":
    from dressage.envs.adapters.gymnasium import HostTask, from_gymnasium

    task = from_gymnasium(name, options)
    assert isinstance(task, HostTask), "an id can be copied"
    return task


def _python(rest: str, options: Options) -> BaseEnv | MultiAgentEnv:
    module_name, _, function_name = rest.partition(":")
    task = f"python:{rest}"
    if not module_name or not function_name:
        raise ConfigError(f"{task} must read python:module:function, for example python:my_task:make.")
    module = _import(module_name, task)
    function = getattr(module, function_name, None)
    if not callable(function):
        near = suggest(function_name, [key for key in vars(module) if not key.startswith("_")])
        raise ConfigError(f"{task}: the module {module_name!r} has no function {function_name!r}.{near}")
    _check_signature(function, options, task)
    env = function(**options)
    if not isinstance(env, BaseEnv | MultiAgentEnv):
        raise ConfigError(
            f"{task} must return a dressage.envs.BaseEnv or MultiAgentEnv, got {type(env).__name__}."
        )
    return env


def _check_signature(function: Callable[..., object], options: Options, task: str) -> None:
    try:
        signature = inspect.signature(function)
    except ValueError:  # some built-in functions have none
        return
    try:
        signature.bind(**options)
    except TypeError as error:
        raise ConfigError(f"{task} does not take the options {sorted(options)}: {error}.") from error


def _import(module_name: str, task: str) -> ModuleType:
    # An installed command does not look into the folder it is called from, as `python` itself does.
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return importlib.import_module(module_name)
    except (ImportError, SyntaxError) as error:
        raise ConfigError(
            f"{task}: importing {module_name!r} failed with {type(error).__name__}: {error}. "
            f"Looked in the current folder and in Python's path."
        ) from error


def _nameless(prefix: str) -> str:
    return (
        f"{prefix}: needs a name behind the colon, for example {', '.join(PREFIXES[prefix].examples)}. "
        f"It reaches: {PREFIXES[prefix].help}"
    )


def _unknown(name: str) -> str:
    if name in PREFIXES:
        return f"There is no task {name!r}. {_nameless(name)}"
    prefix, colon, rest = name.partition(":")
    near = nearest_name(prefix, PREFIXES)
    if colon and near:
        meant: str | None = f"{near}:{rest}" if rest.strip() else PREFIXES[near].examples[0]
    else:
        meant = nearest_name(name, [*tasks(), *PREFIXES])
        meant = PREFIXES[meant].examples[0] if meant in PREFIXES else meant
    hint = f" Did you mean {meant!r}?" if meant else ""
    forms = ", ".join(f"{known}:…" for known in sorted(PREFIXES))
    return f"There is no task {name!r}.{hint} Tasks: {', '.join(tasks())}, or {forms}"
