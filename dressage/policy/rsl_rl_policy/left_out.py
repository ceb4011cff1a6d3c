"""Owns what rsl_rl does where a configuration leaves an entry out: the defaults of its classes."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rsl_rl.extensions import RandomNetworkDistillation, Symmetry
from rsl_rl.modules import CNN

from dressage.policy.rsl_rl_policy.configuration import class_name, resolve

UNNAMED: Mapping[str, Callable[..., Any]] = {
    "rnd_cfg": RandomNetworkDistillation,
    "symmetry_cfg": Symmetry,
    "cnn_cfg": CNN,
}
"""The classes of sections that name none."""


def default_of(config: Mapping[str, Any], path: Sequence[str]) -> Any:  # noqa: ANN401
    """Return what an entry of a configuration is where it trains.

    Args:
        config: rsl_rl's training configuration.
        path: Names of the sections that lead to the entry, and its own; the sections are there.

    Returns:
        What stands there, where it does; else the default in the signature of the class that takes the entry,
        and None where there is none.

    Raises:
        ConfigError: If the section names a class that is not there.
    """
    *sections, name = path
    section: Any = config
    for one in sections:
        section = section[one]
    if name in section:
        return section[name]
    if not sections:
        return None
    if sections == ["obs_groups"]:
        return f"the environment's group {name!r}, else 'policy'"
    where = ".".join(sections)
    owner = UNNAMED.get(sections[-1]) or resolve(class_name(section, where), where)
    parameter = inspect.signature(owner).parameters.get(name)
    return None if parameter is None or parameter.default is parameter.empty else parameter.default
