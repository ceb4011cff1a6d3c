"""Makes groups of workers: what makes an environment becomes copies of it, in this process or in others."""

import importlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any, TypeAlias

import gymnasium

from dressage.config import whole_number
from dressage.errors import ConfigError, EnvironmentContractError
from dressage.workers.group import StepperGroup
from dressage.workers.inline import InlineStepper
from dressage.workers.layout import ParallelLayout, parallel_layout
from dressage.workers.processes import ProcessStepper
from dressage.workers.single_agent import SingleAgentParallelEnv

MakeEnv: TypeAlias = Callable[[], Any]
"""Makes one PettingZoo `ParallelEnv` or Gymnasium environment."""


@dataclass(frozen=True)
class ModuleEnv:
    """Makes an environment of a module with a `parallel_env`; a process imports nothing else for it.

    Attributes:
        module: The module's full name.
        options: Keyword arguments of `parallel_env`.
    """

    module: str
    options: Mapping[str, Any]

    def __call__(self) -> Any:  # noqa: ANN401 (PettingZoo says nothing about its types)
        """Make one."""
        with warnings.catch_warnings():
            # PettingZoo 1.27 asks for its new `make`, which does not know environments of other packages.
            warnings.simplefilter("ignore", DeprecationWarning)
            module = importlib.import_module(self.module)
        return module.parallel_env(**self.options)


def make_workers(
    make_env: MakeEnv | str,
    num_envs: int,
    layout: ParallelLayout | None = None,
    *,
    num_workers: int = 0,
    timeout: float = 60.0,
) -> StepperGroup:
    """Make copies of an environment and what steps them.

    The same seeds and actions give the same results, bit for bit, with any number of workers.

    Args:
        make_env: Makes one `ParallelEnv` (or a Gymnasium environment, which becomes one of a single agent
            called `agent`), or a task name such as `pettingzoo:mpe2.simple_spread_v3`.
        num_envs: How many copies.
        layout: How observations and actions lie in arrays; by default read off one more copy.
        num_workers: How many processes share the copies out among themselves; 0 steps them in this one. With
            any, `make_env` must be something that pickle can send: a function or class at the top of a
            module, a task, or a task name.
        timeout: Seconds that a worker may take to reset or step its copies; making them may take as long, and
            two minutes in any case. What runs in this process is not timed.

    Raises:
        ConfigError: If a number is out of range, the task name is unknown, or `make_env` can't be sent.
        EnvironmentContractError: If what was made is no environment.
        EnvironmentRaisedError: If a worker's environment raises while it is made.
        WorkerLostError: If a worker ends or gives no answer while it makes its copies.
    """
    copies, workers = whole_number(num_envs), whole_number(num_workers)
    if copies is None or copies < 1:
        raise ConfigError(f"num_envs must be an integer >= 1, got {num_envs!r}.")
    if workers is None or not 0 <= workers <= copies:
        raise ConfigError(
            f"num_workers must be an integer from 0 (in this process) to num_envs = {copies}, "
            f"got {num_workers!r}."
        )
    if not timeout > 0:
        raise ConfigError(f"timeout must be a number of seconds > 0, got {timeout!r}.")
    maker = env_maker(make_env)
    if layout is None:
        layout = layout_of(maker)
    if workers == 0:
        return StepperGroup(InlineStepper(maker, copies, layout), layout)
    return StepperGroup(ProcessStepper(pickled(maker), copies, layout, workers, float(timeout)), layout)


def env_maker(make_env: MakeEnv | str) -> MakeEnv:
    """Return what makes one copy with the face of a `ParallelEnv`.

    Raises:
        ConfigError: If a task name is unknown or names no host environment.
    """
    # Imported here: workers, who get the maker, must not load JAX with the environments' package.
    from dressage.envs.adapters.pettingzoo import ParallelTask, module_of
    from dressage.envs.registry import make_task

    made: Any = make_task(make_env, {}) if isinstance(make_env, str) else make_env
    if isinstance(made, ParallelTask) and module_of(made) is not None:
        made = ModuleEnv(str(module_of(made)), dict(made.options))
    if not callable(made):
        raise ConfigError(
            f"make_env must make an environment when it is called, or name a host task, got {make_env!r}."
        )
    return ParallelMaker(made)


@dataclass(frozen=True)
class ParallelMaker:
    """Makes an environment and sees that it has the face of a `ParallelEnv`."""

    make: MakeEnv

    def __call__(self) -> Any:  # noqa: ANN401
        """Make one.

        Raises:
            EnvironmentContractError: If what was made is neither a Gymnasium environment nor a `ParallelEnv`.
        """
        env = self.make()
        if isinstance(env, gymnasium.Env):
            return SingleAgentParallelEnv(env)
        if not all(hasattr(env, name) for name in ("reset", "step", "observation_space", "action_space")):
            raise EnvironmentContractError(
                f"make_env must make a pettingzoo.ParallelEnv or a gymnasium.Env, got {type(env).__name__}."
            )
        return env


def layout_of(make_env: MakeEnv) -> ParallelLayout:
    """Read the layout off a copy that is made for it and closed again."""
    env = make_env()
    try:
        return parallel_layout(env)
    finally:
        env.close()


def pickled(maker: MakeEnv) -> bytes:
    """Pickle what makes an environment.

    Raises:
        ConfigError: If that can't be done.
    """
    try:
        return bytes(ForkingPickler.dumps(maker))
    except Exception as error:
        made = maker.make if isinstance(maker, ParallelMaker) else maker
        raise ConfigError(
            f"make_env {made!r} can't be sent to worker processes ({error}). Give a function or class at the "
            "top of a module (no lambda, no function within a function), a task of dressage.envs.make, or a "
            "task name; or step the copies in this process with num_workers=0."
        ) from error
