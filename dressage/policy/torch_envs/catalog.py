"""Owns the names of the torch tasks, what each is, and the configuration that trains it; imports no torch.

A configuration is rsl_rl's own, as its runner takes it.
"""

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from dressage.config import merge_configs, suggest
from dressage.errors import ConfigError, EnvironmentContractError, MissingExtraError, install_command
from dressage.signals import Signal, Signals

if TYPE_CHECKING:
    from rsl_rl.env import VecEnv

PREFIX = "rsl:"
FACE = ("num_envs", "num_actions", "max_episode_length", "device", "get_observations", "step")
"""What is read of an rsl_rl `VecEnv`."""

OTHERS = ("gymnasium", "python")
GYMNASIUM, PYTHON = (f"{name}:" for name in OTHERS)

GENERAL: dict[str, Any] = {
    "num_steps_per_env": 24,
    "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
    "actor": {
        "class_name": "MLPModel",
        "hidden_dims": [64, 64],
        "activation": "elu",
        "obs_normalization": True,
        "distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 1.0, "std_type": "scalar"},
    },
    "critic": {
        "class_name": "MLPModel",
        "hidden_dims": [64, 64],
        "activation": "elu",
        "obs_normalization": True,
    },
    "algorithm": {
        "class_name": "PPO",
        "num_learning_epochs": 5,
        "num_mini_batches": 4,
        "clip_param": 0.2,
        "gamma": 0.99,
        "lam": 0.95,
        "value_loss_coef": 1.0,
        "use_clipped_value_loss": True,
        "entropy_coef": 0.005,
        "learning_rate": 1.0e-3,
        "schedule": "adaptive",
        "desired_kl": 0.01,
        "max_grad_norm": 1.0,
    },
}
"""The configuration of a task that has none of its own."""


@dataclass(frozen=True)
class TorchTask:
    """A task that rsl_rl learns on.

    Attributes:
        name: Its name, `rsl:` included.
        help: One line that says what is to be done.
        config: rsl_rl's training configuration that trains it.
        num_envs: Copies to train with.
        steps: Environment steps to train for.
        signals: What the numbers that the actor takes and gives are; None where nobody knows.
    """

    name: str
    help: str
    config: Mapping[str, Any]
    num_envs: int
    steps: int
    signals: Signals | None = None

    @property
    def is_of_user(self) -> bool:
        """Whether a function of the user's own makes it."""
        return self.name.startswith(PREFIX + PYTHON)

    def make(self, num_envs: int, seed: int, device: str = "cpu") -> "VecEnv":
        """Make copies of it.

        Args:
            num_envs: How many.
            seed: Draws what they draw.
            device: Where they live.

        Raises:
            MissingExtraError: If torch or rsl_rl is not installed.
            ConfigError: If the name leads nowhere.
        """
        check_installed()
        rest = self.name.removeprefix(PREFIX)
        if rest.startswith(GYMNASIUM):
            return _gymnasium(rest.removeprefix(GYMNASIUM), num_envs, seed, device)
        if rest.startswith(PYTHON):
            return _python(rest.removeprefix(PYTHON), num_envs, seed)
        return _shipped(rest, num_envs, seed, device)


PENDULUM = TorchTask(
    name="rsl:pendulum",
    help="Swing up a rod and hold it there; one torque. Equal to Gymnasium's Pendulum-v1.",
    # Returns of a thousand and more: a clipped value loss would take ever so many updates to reach them.
    config=merge_configs(GENERAL, {"algorithm": {"gamma": 0.95, "use_clipped_value_loss": False}}),
    num_envs=64,
    steps=300_000,
    signals=Signals(
        observation=(Signal("cosine of the angle"), Signal("sine of the angle"), Signal("speed", "rad/s")),
        action=(Signal("torque", "N m"),),
        control_period_s=0.05,
    ),
)
HOPPER = TorchTask(
    name="rsl:hopper",
    help="A planar hopper on one springy leg runs at a commanded speed; hip and thrust.",
    config=merge_configs(GENERAL, {"obs_groups": {"actor": ["policy"], "critic": ["policy", "critic"]}}),
    num_envs=256,
    steps=1_500_000,
    signals=Signals(
        observation=(
            Signal("height of the body", "m"),
            Signal("pitch of the body", "rad"),
            Signal("forward speed", "m/s"),
            Signal("climbing speed", "m/s"),
            Signal("rate of the pitch", "rad/s"),
            Signal("length of the leg", "m"),
            Signal("whether the foot stands, 0 or 1"),
            Signal("commanded speed", "m/s"),
            Signal("angle of the leg from the body's axis", "rad"),
        ),
        action=(Signal("turn of the hip, 1 is 0.6 rad"), Signal("thrust of the leg, 1 is 0.08 m")),
        control_period_s=0.02,
    ),
)
SHIPPED = {task.name: task for task in (PENDULUM, HOPPER)}


def is_torch_task(name: str) -> bool:
    """Whether a name means a task of rsl_rl's."""
    return name.startswith(PREFIX)


def torch_task(name: str) -> TorchTask:
    """Return a task by its name: a shipped one, `rsl:gymnasium:ID` or `rsl:python:module:function`.

    The function takes a number of copies and a seed, and returns an rsl_rl `VecEnv`.

    Raises:
        ConfigError: If there is none of that name.
    """
    if name in SHIPPED:
        return SHIPPED[name]
    kind, _, rest = name.removeprefix(PREFIX).partition(":")
    if kind in OTHERS and rest:
        return TorchTask(name, f"{rest}, made by {kind}.", GENERAL, num_envs=16, steps=1_000_000)
    known = [*SHIPPED, f"{PREFIX}{GYMNASIUM}ID", f"{PREFIX}{PYTHON}MODULE:FUNCTION"]
    raise ConfigError(f"There is no torch task {name!r}.{suggest(name, known)} Known: {', '.join(known)}.")


def check_installed() -> None:
    """Refuse to go on without what rsl_rl needs.

    Raises:
        MissingExtraError: If torch or rsl_rl is not installed.
    """
    missing = [package for package in ("torch", "tensordict", "rsl_rl") if find_spec(package) is None]
    if missing:
        raise MissingExtraError(
            f"Tasks under {PREFIX} need {', '.join(missing)}. On a machine without CUDA install torch "
            f"without it first (`make torch`), then: {install_command('rsl')}"
        )


def _shipped(name: str, num_envs: int, seed: int, device: str) -> "VecEnv":
    from dressage.policy.torch_envs.hopper import Hopper
    from dressage.policy.torch_envs.pendulum import Pendulum

    classes = {"pendulum": Pendulum, "hopper": Hopper}
    return classes[name](num_envs=num_envs, seed=seed, device=device)


def _gymnasium(env_id: str, num_envs: int, seed: int, device: str) -> "VecEnv":
    import gymnasium

    from dressage.policy.torch_envs.gymnasium_batch import make_gymnasium_batch

    try:
        return make_gymnasium_batch(env_id, num_envs, seed, device)
    except gymnasium.error.Error as error:
        raise ConfigError(f"Gymnasium makes no {env_id!r}: {error}") from error


def _python(path: str, num_envs: int, seed: int) -> "VecEnv":
    module_name, _, function_name = path.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
        make: Callable[..., VecEnv] = getattr(module, function_name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"{PREFIX}{PYTHON}{path} leads nowhere: {error}.") from error
    made = make(num_envs, seed)
    lacking = [name for name in FACE if not hasattr(made, name)]
    if lacking:
        raise EnvironmentContractError(
            f"{function_name} of {PREFIX}{PYTHON}{path} returned a {type(made).__name__}, which has no "
            f"{', '.join(lacking)}. It must return an rsl_rl VecEnv."
        )
    if made.num_envs != num_envs:
        raise EnvironmentContractError(
            f"{function_name} of {PREFIX}{PYTHON}{path} was asked for {num_envs} copies and made "
            f"{made.num_envs}. It gets their number and a seed."
        )
    return made
