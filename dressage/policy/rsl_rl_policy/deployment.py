"""What the files of a policy of rsl_rl are made of: its actor as a list of named operations."""

import copy
from functools import partial
from typing import Any

import numpy as np
import torch
from rsl_rl.models import MLPModel, RNNModel
from rsl_rl.modules.distribution import GaussianDistribution
from tensordict import TensorDict
from torch import nn

from dressage.errors import ConfigError
from dressage.learning.policy_graph import Arrays, Deployment, GraphDraft, PolicyGraph, Port

OBSERVATION = "observation"
ACTION = "action"
ACTIVATIONS: dict[type[nn.Module], str] = {
    nn.ELU: "elu",
    nn.ReLU: "relu",
    nn.SiLU: "silu",
    nn.Sigmoid: "sigmoid",
    nn.Softplus: "softplus",
    nn.Tanh: "tanh",
}


def actor_deployment(actor: nn.Module) -> Deployment:
    """Describe what an actor computes, and how it is asked itself.

    The observation is that of all its observation groups side by side, in the actor's order. Actions are raw:
    rsl_rl leaves bounding them to the environment.

    Raises:
        ConfigError: If the model, its distribution or an activation is not one that can be exported.
    """
    if type(actor) not in (MLPModel, RNNModel):
        raise _refusal(f"a {type(actor).__name__}; MLPModel and RNNModel can be")
    if not isinstance(actor.distribution, GaussianDistribution | None):
        raise _refusal(f"its distribution is a {type(actor.distribution).__name__}; Gaussian ones can be")
    alone: Any = copy.deepcopy(actor).cpu().eval()
    groups, alone.obs_groups = list(alone.obs_groups), [OBSERVATION]
    return Deployment(
        graph=_graph(alone),
        loader="",
        description={"observation_groups": groups},
        tensors={},
        outputs=partial(_act, alone, torch.float32),
        reference=partial(_act, copy.deepcopy(alone).double(), torch.float64),
    )


def _graph(actor: Any) -> PolicyGraph:  # noqa: ANN401 (an MLPModel or an RNNModel)
    draft = GraphDraft()
    value = draft.take(Port(OBSERVATION, (actor.obs_dim,)))
    if actor.obs_normalization:
        # Its normaliser divides by the deviation plus a constant and does not clip.
        scale = (actor.obs_normalizer.mean, actor.obs_normalizer.std + actor.obs_normalizer.eps)
        names = (f"{OBSERVATION}/mean", f"{OBSERVATION}/deviation")
        weights = [draft.weight(name, array) for name, array in zip(names, scale, strict=True)]
        value = draft.add("normalize", [value, *weights], "normalized_observation", {"clip": None})
    if isinstance(actor, RNNModel):
        value = _add_memory(draft, value, actor.rnn.rnn)
    value, width = _add_perceptron(draft, value, actor.mlp)
    actions = width if actor.distribution is None else actor.distribution.output_dim
    if width > actions:
        draft.add("columns", [value], ACTION, {"start": 0, "stop": actions})
    else:
        draft.add("identity", [value], ACTION)
    draft.give(Port(ACTION, (actions,)))
    return draft.finish()


def _add_memory(draft: GraphDraft, value: str, rnn: Any) -> str:  # noqa: ANN401 (a GRU or an LSTM)
    """Add the layers of a GRU or an LSTM; an LSTM's state is output and cell side by side."""
    kind, size = ("gru", 1) if isinstance(rnn, nn.GRU) else ("lstm", 2)
    for layer in range(rnn.num_layers):
        state = Port(f"state_{layer}", (size * rnn.hidden_size,))
        draft.take(state)
        place = f"memory_{layer}"
        parts = (("input", "ih"), ("state", "hh"))
        weights = []
        for name, short in parts:
            kernel, bias = (getattr(rnn, f"{what}_{short}_l{layer}") for what in ("weight", "bias"))
            weights += [
                draft.weight(f"{place}/{name}_kernel", _array(kernel).T),
                draft.weight(f"{place}/{name}_bias", _array(bias)),
            ]
        after = draft.add(kind, [value, state.name, *weights], f"next_{state.name}")
        draft.remember(state, after)
        output = {"start": 0, "stop": rnn.hidden_size}
        value = after if size == 1 else draft.add("columns", [after], f"remembered_{layer}", output)
    return value


def _add_perceptron(draft: GraphDraft, value: str, mlp: Any) -> tuple[str, int]:  # noqa: ANN401 (a Sequential)
    """Add linear layers, each with the activation behind it; returns the last value and its width."""
    modules, width, layer = [module for module in mlp if not isinstance(module, nn.Unflatten)], 0, 0
    for module, behind in zip(modules, [*modules[1:], None], strict=True):
        if not isinstance(module, nn.Linear):
            continue
        place = f"actor/{layer}"
        weights = [
            draft.weight(f"{place}/kernel", _array(module.weight).T),
            draft.weight(f"{place}/bias", _array(module.bias)),
        ]
        settings = {} if behind is None else {"activation": _name_of(behind)}
        value = draft.add(
            "dense", [value, *weights], "outputs" if behind is None else f"hidden_{layer}", settings
        )
        width, layer = module.out_features, layer + 1
    return value, width


def _act(actor: Any, dtype: torch.dtype, inputs: Arrays) -> Arrays:  # noqa: ANN401
    """Let the actor itself act, with its memory going in and out."""
    tensors = {name: torch.tensor(array).to(dtype) for name, array in inputs.items()}
    seen = TensorDict({OBSERVATION: tensors[OBSERVATION]}, batch_size=[len(tensors[OBSERVATION])])
    states = [tensors[name] for name in inputs if name != OBSERVATION]
    with torch.inference_mode():
        if not states:
            return {ACTION: actor(seen).numpy()}
        together = torch.stack(states)
        lstm = isinstance(actor.rnn.rnn, nn.LSTM)
        parts = tuple(part.contiguous() for part in together.chunk(2, dim=-1)) if lstm else together
        actor.reset(hidden_state=parts)
        made = {ACTION: actor(seen).numpy()}
        after = actor.get_hidden_state()
    joined = torch.cat(after, dim=-1) if lstm else after
    return made | {f"next_state_{layer}": state.numpy() for layer, state in enumerate(joined)}


def _name_of(activation: nn.Module) -> str:
    name = ACTIVATIONS.get(type(activation))
    if name is None or getattr(activation, "alpha", 1.0) != 1.0:
        known = ", ".join(kind.__name__ for kind in ACTIVATIONS)
        raise _refusal(f"its activation is {activation}; {known} can be")
    return name


def _array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()


def _refusal(reason: str) -> ConfigError:
    return ConfigError(f"The policy of rsl_rl cannot be exported: {reason}.")
