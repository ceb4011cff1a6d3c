"""Owns reading and loading the states of modules: cloned, complete, and strict in names and shapes.

A module's `state_dict` aliases its live weights, so every reader gets clones.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dressage.errors import WeightsError
from dressage.policy.finite import holds_nan

States = dict[str, dict[str, Tensor]]
"""Tensors by module and by name."""


def read_states(modules: Mapping[str, nn.Module]) -> States:
    """Return clones of parameters and buffers, by module and name."""
    return {module: _clones(owner.state_dict()) for module, owner in modules.items()}


def load_states(modules: Mapping[str, nn.Module], states: Mapping[str, Mapping[str, Any]]) -> None:
    """Load states into modules; nothing is changed unless everything fits.

    Args:
        modules: By name.
        states: By module and name; torch tensors or NumPy arrays.

    Raises:
        WeightsError: If a module or a name is missing or unknown, a shape differs, or there is a NaN; all of
            it is listed.
    """
    wanted = {module: owner.state_dict() for module, owner in modules.items()}
    given = {
        module: {name: as_tensor(value) for name, value in values.items()}
        for module, values in states.items()
    }
    faults = list_faults(wanted, given)
    if faults:
        raise WeightsError("The weights do not fit the modules: " + "; ".join(faults) + ".")
    # Normalisers that a rollout has updated are inference tensors, which only inference mode may write to.
    values = flatten(given)
    with torch.inference_mode():
        for path, tensor in flatten(wanted).items():
            tensor.copy_(values[path])


def as_tensor(value: Any) -> Tensor:  # noqa: ANN401 (a tensor, an array or a number)
    """Return a tensor; an array that may not be written to is copied, since torch cannot guard it."""
    if isinstance(value, Tensor):
        return value
    array = np.asarray(value)
    return torch.from_numpy(array if array.flags.writeable and array.ndim else array.copy())


def as_array(tensor: Tensor) -> np.ndarray:
    """Return a contiguous NumPy array of a tensor; on the CPU they may share memory."""
    array: np.ndarray = tensor.detach().cpu().contiguous().numpy()
    return array


def as_arrays(tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Return tensors as contiguous NumPy arrays; on the CPU they may share memory."""
    return {name: as_array(tensor) for name, tensor in tensors.items()}


def flatten(states: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return states by `module/name`."""
    return {
        f"{module}/{name}": tensor for module, tensors in states.items() for name, tensor in tensors.items()
    }


def unflatten(arrays: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Undo `flatten`."""
    states: dict[str, dict[str, Any]] = {}
    for path, array in arrays.items():
        module, _, name = path.partition("/")
        states.setdefault(module, {})[name] = array
    return states


def list_faults(wanted: Mapping[str, Mapping[str, Any]], given: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return what keeps given states from fitting those wanted, one text a fault; both by module and name."""
    return list(_faults(wanted, given))


def _clones(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in state.items()}


def _faults(wanted: Mapping[str, Mapping[str, Any]], given: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for module in sorted(wanted.keys() | given.keys()):
        here, there = wanted.get(module), given.get(module)
        if there is None:
            yield f"module {module!r} is missing"
        elif here is None:
            yield f"module {module!r} is unknown (known: {', '.join(sorted(wanted))})"
        else:
            yield from _module_faults(module, here, there)


def _module_faults(module: str, here: Mapping[str, Any], there: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(here.keys() | there.keys()):
        path = f"{module}/{name}"
        if name not in there:
            yield f"{path} {list(here[name].shape)} is missing"
        elif name not in here:
            yield f"{path} {list(there[name].shape)} is unknown"
        elif tuple(here[name].shape) != tuple(there[name].shape):
            yield f"{path} is {list(there[name].shape)} where {list(here[name].shape)} is needed"
        elif holds_nan(there[name]):
            yield f"{path} holds NaN"
