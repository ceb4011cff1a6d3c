"""Owns optimisers: making one over an algorithm's parameters from a configuration, and how it steps."""

import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from rsl_rl.utils import resolve_optimizer
from torch import Tensor

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


@contextmanager
def stepping_together(algorithm: Algorithm) -> Iterator[None]:
    """Have an algorithm's optimisers step all parameters of a group in one call (torch's `foreach`).

    Left to itself torch does so on CUDA alone. On the CPU the bits are the same, and a step of Adam takes a
    third less time. Afterwards the groups are as they were, and so are the checkpoints that hold them.

    Args:
        algorithm: What learns; what its configuration says of `foreach` holds.
    """
    optimizers = [algorithm.optimizer, getattr(getattr(algorithm, "rnd", None), "optimizer", None)]
    groups = [group for one in optimizers if one is not None for group in one.param_groups]
    chosen = [group for group in groups if _is_left_to_torch(group) and _steps_alike(group["params"])]
    for group in chosen:
        group["foreach"] = True
    try:
        yield
    finally:
        for group in chosen:
            group["foreach"] = None


def _is_left_to_torch(group: Mapping[str, Any]) -> bool:
    """Whether nobody chose how a group steps, and `foreach` takes what else was chosen."""
    free = "foreach" in group and group["foreach"] is None and not group.get("fused")
    return free and not group.get("differentiable") and not isinstance(group["lr"], Tensor)


def _steps_alike(parameters: list[Tensor]) -> bool:
    """Whether one call steps as many do: not where a parameter stands twice, as a shared encoder does."""
    return len(set(parameters)) == len(parameters) and all(one.device.type == "cpu" for one in parameters)
