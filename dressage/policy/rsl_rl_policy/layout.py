"""Owns what observations and rollouts look like for the models that a policy was built with."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from rsl_rl.modules.distribution import Distribution
from torch import nn

from dressage.policy.rsl_rl_policy.configuration import MODELS, Algorithm

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """Shapes of one copy's part of everything, and how many copies there are.

    Attributes:
        num_envs: Copies that the policy was built for, `N`.
        observations: Shape by observation group.
        dtypes: Type of the numbers by observation group.
        steps: Shape of the fields that every step must have, by path.
        last: Shape of what must hold after the last step, by path.
    """

    num_envs: int
    observations: Mapping[str, Shape]
    dtypes: Mapping[str, torch.dtype]
    steps: Mapping[str, Shape]
    last: Mapping[str, Shape]


def layout_of(algorithm: Algorithm, models: tuple[str, str]) -> Layout:
    """Read the layout off an algorithm that has its storage still; takes nothing from a random stream.

    Args:
        algorithm: With models and storage.
        models: Names of its two models.
    """
    storage = algorithm.storage
    groups = {str(name): tensor for name, tensor in storage.observations.items()}
    observations = {name: tuple(tensor.shape[2:]) for name, tensor in groups.items()}
    action = tuple(storage.actions.shape[2:])
    seen = {f"observation/{name}": shape for name, shape in observations.items()}
    steps: dict[str, Shape] = {**seen, "action": action, "reward": (), "terminated": (), "truncated": ()}
    last = dict(seen)
    if models == MODELS["PPO"]:
        params = _distribution_shapes(algorithm.get_policy())
        steps |= {"value": (1,), "log_prob": ()}
        steps |= {f"distribution/{index}": shape for index, shape in enumerate(params)}
        states = {name: _state_shapes(getattr(algorithm, f"_raw_{name}")) for name in models}
        steps |= {f"hidden_state/{name}/{i}": part for name in models for i, part in enumerate(states[name])}
        last |= {f"hidden_state/critic/{i}": part for i, part in enumerate(states["critic"])}
    else:
        steps["extras/privileged_action"] = action
    dtypes = {name: tensor.dtype for name, tensor in groups.items()}
    return Layout(int(storage.num_envs), observations, dtypes, steps, last)


def _distribution_shapes(actor: nn.Module) -> Sequence[Shape]:
    """Return the shapes of one copy's distribution parameters; none of a distribution that is no rsl_rl's."""
    given = getattr(actor, "distribution", None)
    if not isinstance(given, Distribution):
        return ()
    distribution = copy.deepcopy(given)
    wide = distribution.input_dim
    device = next(actor.parameters()).device
    distribution.update(torch.zeros(1, *([wide] if isinstance(wide, int) else wide), device=device))
    return [tuple(part.shape[1:]) for part in distribution.params]


def _state_shapes(model: nn.Module) -> Sequence[Shape]:
    """Return the shapes `[layers, units]` of one copy's recurrent state; of rsl_rl's models alone."""
    network = getattr(getattr(model, "rnn", None), "rnn", None)
    if not isinstance(network, nn.RNNBase):
        return ()
    parts = 2 if isinstance(network, nn.LSTM) else 1
    return [(network.num_layers, network.hidden_size)] * parts


def numbers_of(array: Any) -> str:  # noqa: ANN401 (of any framework)
    """Return the name of the type of an array's numbers."""
    return str(array.dtype).removeprefix("torch.")
