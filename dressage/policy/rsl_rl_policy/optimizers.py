"""Owns making an optimiser over an algorithm's parameters from a configuration."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from rsl_rl.utils import resolve_optimizer

from dressage.config import check_names
from dressage.errors import ConfigError
from dressage.policy.rsl_rl_policy.configuration import Algorithm

NAME, RATE = "class_name", "learning_rate"


def make_optimizer(algorithm: Algorithm, config: Mapping[str, Any]) -> torch.optim.Optimizer:
    """Make an optimiser for the parameters that the present one has.

    Args:
        algorithm: Whose parameters.
        config: `class_name` (adam, adamw, sgd or rmsprop), `learning_rate`, and arguments of torch's
            optimiser of that name. What is left out is as it is now, or torch's default.

    Raises:
        ConfigError: If there is no such optimiser, it has no such argument, or it refuses a value.
    """
    present = algorithm.optimizer
    named = config.get(NAME, type(present).__name__)
    try:
        found = resolve_optimizer(str(named))
    except ValueError as error:
        raise ConfigError(f"The optimiser's {NAME} is wrong: {error}.") from error
    known = [name for name in inspect.signature(found).parameters if name not in ("params", "lr")]
    check_names(config, [NAME, RATE, *known], f"The optimiser {named!r}")
    # A shared encoder stands in rsl_rl's optimiser twice; once is enough.
    parameters = dict.fromkeys(parameter for group in present.param_groups for parameter in group["params"])
    arguments = {name: value for name, value in config.items() if name not in (NAME, RATE)}
    rate = config.get(RATE, algorithm.learning_rate)
    try:
        made: torch.optim.Optimizer = found(list(parameters), lr=rate, **arguments)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"The optimiser {named!r} refuses its configuration: {error}.") from error
    return made
