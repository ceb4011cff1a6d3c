"""PettingZoo environments by name: a task that makes copies of one `ParallelEnv` on the host."""

import importlib
import importlib.util
import inspect
import pkgutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, TypeAlias

from pettingzoo import ParallelEnv

from dressage.config import check_names, suggest
from dressage.envs.adapters.extras import import_extra
from dressage.errors import ConfigError, EnvironmentContractError

Options: TypeAlias = Mapping[str, Any]
Maker: TypeAlias = Callable[[Options], ParallelEnv]

OF_EXTRAS = {"lbforaging": "envs", "mpe2": "envs", "rware": "envs"}
"""Packages of environments that an extra of ours brings."""


@dataclass(frozen=True)
class ParallelTask:
    """Makes copies of a PettingZoo environment; itself a function without arguments that makes one.

    It can be pickled where its maker can, so that worker processes make their own copies.

    Attributes:
        name: What error texts call it.
        maker: Makes one copy from a mapping of options.
        options: What every copy is made with.
    """

    name: str
    maker: Maker
    options: Options = field(default_factory=dict)

    def __call__(self) -> ParallelEnv:
        """Make one copy."""
        return self.make()

    def make(self, render_mode: str | None = None) -> ParallelEnv:
        """Make one copy.

        Args:
            render_mode: As the environment means it, for example `"rgb_array"`; None is not handed on.

        Raises:
            ConfigError: If the environment refuses the options.
            EnvironmentContractError: If what was made is no `ParallelEnv`.
        """
        options = dict(self.options) if render_mode is None else {**self.options, "render_mode": render_mode}
        try:
            env = self.maker(options)
        except (AssertionError, TypeError) as error:
            raise ConfigError(f"{self.name} refuses the options {options}: {error}") from error
        if not isinstance(env, ParallelEnv):
            raise EnvironmentContractError(
                f"{self.name} must make a pettingzoo.ParallelEnv, got {type(env).__name__}."
            )
        return env


def from_parallel_env(env: str | Callable[..., ParallelEnv], options: Options | None = None) -> ParallelTask:
    """Return a task that makes copies of a PettingZoo environment.

    Args:
        env: A module with a function `parallel_env`, for example `mpe2.simple_spread_v3` or
            `butterfly.knights_archers_zombies_v11` (one of PettingZoo's own, whose name may be left out); or
            a function that makes a `ParallelEnv`.
        options: Keyword arguments of that function.

    Returns:
        The task; nothing is made yet.

    Raises:
        MissingExtraError: If the package comes with an extra that is not installed.
        ConfigError: If there is no such module, it needs something that is not installed, makes no
            `ParallelEnv`, or does not know an option.
    """
    given = dict(options or {})
    if not isinstance(env, str):
        return ParallelTask(getattr(env, "__name__", type(env).__name__), _Call(env), given)
    task = f"pettingzoo:{env}"
    module = _module(env, task)
    if not callable(getattr(module, "parallel_env", None)):
        raise ConfigError(f"{task}: the module {module.__name__!r} has no function 'parallel_env'.")
    # `parallel_env` takes anything; the class behind it says what it knows.
    parameters = inspect.signature(module.raw_env).parameters if hasattr(module, "raw_env") else {}
    if parameters and not any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        check_names(given, list(parameters), task)
    return ParallelTask(task, _ModulesEnv(module.__name__), given)


def module_of(task: ParallelTask) -> str | None:
    """Return the module whose `parallel_env` a task calls, or None where it is made in another way."""
    return task.maker.module if isinstance(task.maker, _ModulesEnv) else None


@dataclass(frozen=True)
class _Call:
    """A maker from a function of keywords."""

    function: Callable[..., ParallelEnv]

    def __call__(self, options: Options) -> ParallelEnv:
        return self.function(**options)


@dataclass(frozen=True)
class _ModulesEnv:
    """A maker that each process imports for itself: `parallel_env` is a closure, which cannot be pickled."""

    module: str

    def __call__(self, options: Options) -> ParallelEnv:
        return _import(self.module).parallel_env(**options)


def _module(name: str, task: str) -> ModuleType:
    package = name.partition(".")[0]
    if package in OF_EXTRAS:
        import_extra(package, OF_EXTRAS[package])
    elif importlib.util.find_spec(package) is None:
        name = f"pettingzoo.{name}"
    try:
        return _import(name)
    except ImportError as error:
        near = "" if isinstance(error, ModuleNotFoundError) and error.name != name else _nearest(name)
        raise ConfigError(f"{task}: importing {name!r} failed: {error}.{near}") from error


def _import(name: str) -> ModuleType:
    with warnings.catch_warnings():
        # PettingZoo 1.27 asks for its new `make`, which does not know the environments of other packages.
        warnings.simplefilter("ignore", DeprecationWarning)
        return importlib.import_module(name)


def _nearest(name: str) -> str:
    parent, _, last = name.rpartition(".")
    try:
        paths = list(_import(parent).__path__) if parent else []
    except ImportError:
        paths = []
    return suggest(last, [found.name for found in pkgutil.iter_modules(paths)])
