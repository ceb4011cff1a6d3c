"""Networks in a folder: one file of weights for each module of each agent, and a manifest of them all.

Weights are safetensors and the manifest is JSON; both carry checksums, and nothing in them is executed. A
module's class is looked up among dressage's own networks, never imported by a name that a file gives.
"""

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax.traverse_util import flatten_dict, unflatten_dict

from dressage import networks
from dressage.config import suggest
from dressage.envs import BaseEnv, MultiAgentEnv, to_parallel_env
from dressage.errors import CheckpointError, ConfigError
from dressage.learning.policy_files import (
    check_seal,
    describe,
    pack,
    read_description,
    safe_names,
    seal,
    unpack,
    write_whole,
)
from dressage.learning.space_files import space_to_json

MANIFEST = "models.json"
SUFFIX = ".safetensors"
STATIC = ("parent", "name")
"""Fields that Flax gives every module, which say nothing of what it computes."""

Modules = Mapping[str, type[nn.Module]]


def save_models(env: Any, models: Mapping[Any, Mapping[str, nn.Module]], folder: str | Path) -> None:  # noqa: ANN401
    """Write the modules of every agent.

    Killed at any moment, the folder holds the models that were there before or these.

    Args:
        env: A `ParallelEnv`, a callable that makes one, or a functional environment of several agents; its
            spaces go into the manifest.
        models: For each agent its modules by name, each bound to its parameters
            (`module.bind(variables)`).
        folder: Where the files go.

    Raises:
        ConfigError: If there is no model, an agent is not one of the environment's, a module is not bound, or
            a module has a field that no file can hold.
    """
    folder, spaces = Path(folder), _spaces_of(env)
    _check_agents([str(agent) for agent in models], list(spaces))
    contents = {
        (str(agent), name): _content(str(agent), name, module)
        for agent, modules in models.items()
        for name, module in modules.items()
    }
    names = safe_names([f"{agent}.{name}" for agent, name in contents])
    agents: dict[str, Any] = {agent: {**spaces[agent], "modules": {}} for agent, _ in contents}
    for (agent, name), (described, content) in contents.items():
        digest = hashlib.sha256(content).hexdigest()
        file = f"{names[f'{agent}.{name}']}-{digest[:12]}{SUFFIX}"
        write_whole(folder / file, content)
        agents[agent]["modules"][name] = {**described, "file": file, "sha256_of_file": digest}
    # The manifest names files by their content, so that this one step exchanges all of them.
    write_whole(folder / MANIFEST, seal(describe({"agents": agents}).encode()))
    _remove_unlisted(folder, agents)


def load_models(
    folder: str | Path,
    env: Any = None,  # noqa: ANN401
    *,
    classes: Modules | None = None,
) -> dict[str, dict[str, nn.Module]]:
    """Read the modules that `save_models` wrote.

    Args:
        folder: Where they lie.
        env: An environment that they must fit; None for no check.
        classes: Module classes of your own, by name.

    Returns:
        For each agent its modules by name, bound to their parameters.

    Raises:
        CheckpointError: If a file is missing, cut short or altered.
        ConfigError: If the models were made for other agents or spaces than those of `env`, or a module's
            class is not known.
    """
    folder = Path(folder)
    agents = _read_manifest(folder)
    if env is not None:
        _check_spaces(folder, agents, _spaces_of(env))
    known = {**_own_classes(), **(classes or {})}
    return {
        agent: {
            name: _load(folder, f"{agent}.{name}", described, known)
            for name, described in entry["modules"].items()
        }
        for agent, entry in agents.items()
    }


def _content(agent: str, name: str, module: Any) -> tuple[dict[str, Any], bytes]:  # noqa: ANN401
    if not isinstance(module, nn.Module):
        raise ConfigError(
            f"Agent {agent!r} has a {type(module).__name__} as {name!r}; a Flax module is needed, bound to "
            "its parameters by module.bind(variables)."
        )
    if module.scope is None:
        raise ConfigError(
            f"The module {name!r} of agent {agent!r} is not bound: give module.bind(variables)."
        )
    described = {"module": _describe_module(module, f"{agent}.{name}")}
    tensors = {path: np.asarray(leaf) for path, leaf in flatten_dict(dict(module.variables), sep="/").items()}
    described["shapes"] = {path: list(array.shape) for path, array in tensors.items()}
    return described, pack(described, tensors)


def _describe_module(module: nn.Module, owner: str) -> dict[str, Any]:
    fields = [field.name for field in dataclasses.fields(module) if field.name not in STATIC]
    return {
        "class": type(module).__name__,
        "fields": {name: _describe_field(getattr(module, name), f"{owner}.{name}") for name in fields},
    }


def _describe_field(value: Any, owner: str) -> Any:  # noqa: ANN401 (a module's field may be anything)
    if isinstance(value, nn.Module):
        return _describe_module(value, owner)
    if isinstance(value, tuple | list):
        return [_describe_field(item, owner) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ConfigError(
        f"The field {owner} is a {type(value).__name__}, which no file can hold; name it, as dressage's "
        "networks name their activations."
    )


def _load(folder: Path, owner: str, described: dict[str, Any], known: Modules) -> nn.Module:
    path = folder / described["file"]
    if not path.is_file():
        raise CheckpointError(f"The models in {folder} are incomplete: {path.name} is missing.")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != described["sha256_of_file"]:
        raise CheckpointError(
            f"The models in {folder} are damaged: {path.name} differs from its checksum in {MANIFEST}."
        )
    _, tensors = unpack(content, str(path))
    arrays = {name: jnp.asarray(array) for name, array in tensors.items()}
    return _make_module(described["module"], owner, known).bind(unflatten_dict(arrays, sep="/"))


def _make_module(described: dict[str, Any], owner: str, known: Modules) -> nn.Module:
    name = described["class"]
    if name not in known:
        raise ConfigError(
            f"{owner} is a {name}, which is none of dressage's networks: give load_models "
            f"classes={{{name!r}: {name}}}.{suggest(name, known)}"
        )
    fields = {field: _make_field(value, owner, known) for field, value in described["fields"].items()}
    module: nn.Module = known[name](**fields)
    return module


def _make_field(value: Any, owner: str, known: Modules) -> Any:  # noqa: ANN401
    if isinstance(value, dict):
        return _make_module(value, owner, known)
    return tuple(_make_field(item, owner, known) for item in value) if isinstance(value, list) else value


def _own_classes() -> dict[str, type[nn.Module]]:
    """The network classes of dressage, wherever they have been defined so far."""
    found: dict[str, type[nn.Module]] = {}
    waiting = [nn.Module]
    while waiting:
        waiting += (kinds := waiting.pop().__subclasses__())
        found |= {kind.__name__: kind for kind in kinds if kind.__module__.startswith("dressage.")}
    assert networks.MLP.__name__ in found, "the package's own networks are imported here"
    return found


def _spaces_of(env: Any) -> dict[str, dict[str, Any]]:  # noqa: ANN401
    """Describe the spaces of every agent."""
    if callable(env) and not hasattr(env, "possible_agents"):
        env = env()
    if isinstance(env, BaseEnv | MultiAgentEnv):
        env = to_parallel_env(env)
    agents = list(getattr(env, "possible_agents", None) or ())
    if not agents:
        raise ConfigError(
            f"{type(env).__name__} has no possible_agents: give it the list of all agents that may ever act."
        )
    return {
        str(agent): {
            "observation_space": space_to_json(env.observation_space(agent)),
            "action_space": space_to_json(env.action_space(agent)),
        }
        for agent in agents
    }


def _check_agents(given: list[str], known: list[str]) -> None:
    if not given:
        raise ConfigError("There is no model to save: `models` is empty.")
    for agent in given:
        if agent not in known:
            raise ConfigError(f"The environment has no agent {agent!r}.{suggest(agent, known)}")


def _check_spaces(folder: Path, saved: dict[str, Any], spaces: dict[str, dict[str, Any]]) -> None:
    for agent, entry in saved.items():
        if agent not in spaces:
            raise ConfigError(
                f"The models in {folder} were made for an agent {agent!r}, which the environment does not "
                f"have. It has: {', '.join(spaces)}."
            )
        other = [what for what in spaces[agent] if entry[what] != spaces[agent][what]]
        if other:
            raise ConfigError(
                f"The models in {folder} were made for another {other[0].replace('_', ' ')} of agent "
                f"{agent!r}: {entry[other[0]]} there, {spaces[agent][other[0]]} here."
            )


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    if not path.is_file():
        raise CheckpointError(f"There are no models in {folder}: {MANIFEST} is missing.")
    content = path.read_bytes()
    check_seal(content, str(path))
    agents: dict[str, Any] = read_description(content.decode(), str(path))["agents"]
    return agents


def _remove_unlisted(folder: Path, agents: Mapping[str, Any]) -> None:
    """Remove files of models that were there before; other files stay."""
    listed = {module["file"] for entry in agents.values() for module in entry["modules"].values()}
    for path in folder.glob(f"*.*-????????????{SUFFIX}"):
        if path.name not in listed:
            path.unlink()
