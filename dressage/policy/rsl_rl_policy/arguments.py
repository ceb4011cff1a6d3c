"""Owns the look at what a policy is made and called with, besides its training configuration."""

import torch

from dressage.errors import ConfigError, RolloutError
from dressage.policy.base_policy import BasePolicy, EnvRet, PolicyConfig
from dressage.policy.rsl_rl_policy.configuration import ALGORITHMS


def check_type(config: PolicyConfig, base: type[BasePolicy], own: type[BasePolicy]) -> None:
    """Refuse a configuration of another policy.

    Args:
        config: The configuration.
        base: The class whose configuration it must be.
        own: The class that is made of it, that one or one derived from it.

    Raises:
        ConfigError: If its type names neither, nor one between them.
    """
    known = [one.__name__ for one in own.__mro__ if issubclass(one, base)]
    if config.type not in known:
        raise ConfigError(
            f"PolicyConfig type {config.type!r} is another policy than this one, which is {known[0]!r}. "
            f"Algorithms of rsl_rl are chosen by policy_kwargs['algorithm']['class_name']: "
            f"{' or '.join(ALGORITHMS)}."
        )


def check_device(name: str) -> None:
    """Refuse a device that torch does not know, or that is not there.

    Raises:
        ConfigError: If it is one of those.
    """
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ConfigError(
            f"PolicyConfig device {name!r} is none that torch knows, such as 'cpu' or 'cuda:0'."
        ) from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"PolicyConfig device {name!r}: torch finds no CUDA device here. There is 'cpu'.")


def check_answer(given: object, method: str) -> None:
    """Refuse what is no answer of an environment.

    Raises:
        RolloutError: If it is of another type.
    """
    if not isinstance(given, EnvRet):
        raise RolloutError(
            f"{method} takes an EnvRet, got {type(given).__name__}. VecEnvRollouts makes them of an rsl_rl "
            "environment; by hand it is EnvRet(name, observation, ...)."
        )
