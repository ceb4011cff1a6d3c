"""Owns the forms of observations (rsl_rl's groups, plain mappings, one array) and of recurrent states."""

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from dressage.config import suggest
from dressage.errors import EnvironmentContractError
from dressage.policy.rsl_rl_policy.layout import Layout, numbers_of
from dressage.policy.rsl_rl_policy.module_states import as_tensor

SINGLE_GROUP = "policy"
"""Name of the group that an observation without groups becomes; rsl_rl falls back to the same."""


def checked_groups(observation: Any, layout: Layout, device: str, whose: str) -> TensorDict:  # noqa: ANN401
    """Return an observation as groups on a device.

    Args:
        observation: A `TensorDict`, a mapping of arrays by group, or one array, each `[N, ...]`.
        layout: What it must look like.
        device: Where the policy computes.
        whose: Where it comes from, for errors.

    Raises:
        EnvironmentContractError: If a group is missing, or has another shape or type of numbers.
    """
    plain = isinstance(observation, Mapping) and not isinstance(observation, TensorDict)
    groups = observation if plain or isinstance(observation, TensorDict) else {SINGLE_GROUP: observation}
    tensors = {name: _checked_group(groups, name, layout, whose) for name in layout.observations}
    if isinstance(observation, TensorDict):
        return observation if observation.device == torch.device(device) else observation.to(device)
    moved = {name: tensor.to(device) for name, tensor in tensors.items()}
    return TensorDict(moved, batch_size=[layout.num_envs], device=torch.device(device))


def as_numbers(value: Any, what: str) -> Tensor:  # noqa: ANN401 (whatever an environment gave)
    """Return what an environment gave as a tensor.

    Raises:
        EnvironmentContractError: If it holds no numbers; `what` says what it is.
    """
    try:
        return as_tensor(value)
    except (TypeError, ValueError) as error:
        raise EnvironmentContractError(
            f"{what} is a {type(value).__name__}, and no array of numbers."
        ) from error


def _checked_group(groups: Any, name: str, layout: Layout, whose: str) -> Tensor:  # noqa: ANN401
    if name not in groups:
        known = [str(group) for group in groups.keys()]
        near = suggest(name, known) if known else " It has none."
        raise EnvironmentContractError(
            f"The observation of {whose} lacks the group {name!r}, which the policy was built with.{near}"
        )
    tensor = as_numbers(groups[name], f"Observation group {name!r} of {whose}")
    wanted = (layout.num_envs, *layout.observations[name])
    if tensor.shape != wanted:
        raise EnvironmentContractError(
            f"Observation group {name!r} of {whose} has shape {list(tensor.shape)}; the policy was built for "
            f"{list(wanted)}, the first of it copies."
        )
    if tensor.dtype != layout.dtypes[name]:
        raise EnvironmentContractError(
            f"Observation group {name!r} of {whose} holds {numbers_of(tensor)}; the policy was built for "
            f"{str(layout.dtypes[name]).removeprefix('torch.')}: convert it."
        )
    return tensor


def hidden_parts(state: Any) -> tuple[Tensor, ...]:  # noqa: ANN401 (None, a tensor, or an LSTM's pair)
    """Return a recurrent state as its tensors, `[layers, N, units]` each; empty where there is none."""
    if state is None:
        return ()
    return state if isinstance(state, tuple) else (state,)


def join_parts(parts: tuple[Tensor, ...]) -> Any:  # noqa: ANN401
    """Undo `hidden_parts`: one tensor for a GRU, a pair for an LSTM, None for nothing."""
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else parts
