"""Owns the forms in which observations come: rsl_rl's groups, plain mappings, one array."""

from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from dressage.policy.rsl_rl_policy.module_states import as_tensor

SINGLE_GROUP = "policy"
"""Name of the group that an observation without groups becomes; rsl_rl falls back to the same."""


def as_groups(observation: Any, device: str) -> TensorDict:  # noqa: ANN401 (every form of an observation)
    """Return an observation as groups on a device.

    Args:
        observation: A `TensorDict`, a mapping of arrays by group, or one array, each `[N, ...]`.
        device: Where the policy computes.
    """
    if isinstance(observation, TensorDict):
        return observation if observation.device == torch.device(device) else observation.to(device)
    groups = observation if isinstance(observation, Mapping) else {SINGLE_GROUP: observation}
    tensors = {str(name): as_tensor(array).to(device) for name, array in groups.items()}
    first = next(iter(tensors.values()))
    return TensorDict(tensors, batch_size=[first.shape[0]], device=torch.device(device))


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
