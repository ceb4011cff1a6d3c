"""Policies of every kind that the tests of export look at, and what each of them was shipped as."""

import functools
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from dressage.export import FORMATS, export_policy
from dressage.export.exporting import Trial, make_trial, open_runner
from dressage.learning.graph_building import (
    GraphDraft,
    add_gru,
    add_head,
    add_observation,
    add_perceptron,
)
from dressage.learning.live_policy import in_float32, in_float64, named_probabilities, observation_tree
from dressage.learning.policy_graph import Deployment
from dressage.learning.policy_head import PolicyHead
from dressage.learning.specs import agent_spec, observation_layout
from dressage.networks import Actor, apply_actor
from tests.ppo.test_policy import SCALING, policy_for

Box, Discrete, MultiBinary = gymnasium.spaces.Box, gymnasium.spaces.Discrete, gymnasium.spaces.MultiBinary
TREE = gymnasium.spaces.Dict(
    {
        "cup": Discrete(4, start=2),
        "gauges": gymnasium.spaces.Tuple([Box(-1, 1, (2, 3)), MultiBinary(2)]),
        "switches": gymnasium.spaces.MultiDiscrete([2, 3], start=[0, 1]),
    }
)
UNEVEN = Box(np.float32([-2, 0.1]), np.float32([5, 1]))

PPO_KINDS = {
    "squashed": (UNEVEN, {"scaling": SCALING}),
    "clipped": (UNEVEN, {"scaling": SCALING, "SQUASH": False, "HIDDEN_ACTIVATION": "relu"}),
    "half bounded": (
        Box(np.float32([-2, -np.inf]), np.float32([5, 1])),
        {"SQUASH": False, "STATE_INDEPENDENT_STD": False, "HIDDEN_ACTIVATION": "elu"},
    ),
    "unbounded": (Box(-np.inf, np.inf, (2,)), {"SQUASH": False, "HIDDEN_ACTIVATION": "softplus"}),
    "matrix": (Box(-1, 1, (2, 2)), {"NUM_HIDDEN_LAYERS": 0}),
    "categorical": (Discrete(3, start=-1), {"scaling": SCALING, "HIDDEN_ACTIVATION": "gelu"}),
    "factored": (gymnasium.spaces.MultiDiscrete([2, 3], start=[1, -1]), {"HIDDEN_ACTIVATION": "silu"}),
    "binary": (MultiBinary((2, 2)), {"scaling": SCALING}),
    "tree of observations": (Box(-1, 1, (2,)), {"observation_space": TREE}),
}
TOY_KINDS = ("recurrent", "parameterized", "parameterized tuple")
KINDS = (*PPO_KINDS, *TOY_KINDS)
PARTS = {"go": Discrete(3, start=1), "force": Box(-1, 1, (2,)), "flags": MultiBinary(2)}


@dataclass
class ToyPolicy:
    """A policy without normaliser on three numbers, put together from the library's own parts."""

    action_space: gymnasium.Space
    recurrent: bool = False

    def deployment(self):
        return self._deployment

    @functools.cached_property
    def _deployment(self):
        spec = agent_spec("agent", Box(-1, 1, (3,)), self.action_space)
        layout = observation_layout("agent", Box(-1, 1, (3,)))
        actor = Actor(spec.action_dim, spec.continuous_dim, hidden_sizes=(8,))
        cell = nn.GRUCell(5)
        width = 5 if self.recurrent else 3
        layers = actor.init(jax.random.key(0), jnp.zeros(width))["params"]
        layers["Dense_1"] = jax.tree.map(lambda leaf: 100 * leaf + 0.1, layers["Dense_1"])
        memory = cell.init(jax.random.key(1), jnp.zeros(5), jnp.zeros(3))["params"]

        draft = GraphDraft()
        value = add_observation(draft, layout)
        if self.recurrent:
            value = add_gru(draft, value, memory)
        value = add_perceptron(draft, value, layers, "tanh")
        graph = draft.finish(add_head(draft, value, spec, squash=False))

        @jax.jit
        def outputs(params, inputs):
            value, made = observation_tree(layout, inputs), {}
            if self.recurrent:
                made["next_state"], value = cell.apply({"params": params["memory"]}, inputs["state"], value)
            head = PolicyHead(spec)
            distribution = head.distribution(apply_actor(actor, params["actor"], value))
            action = head.environment_action(distribution.mode())
            parts = action.items() if isinstance(action, dict) else enumerate(action)
            if isinstance(action, dict | tuple):
                made |= {f"action.{name}": part for name, part in parts}
            else:
                made["action"] = action
            return made | named_probabilities(distribution)

        params = {"actor": layers, "memory": memory}
        live, reference = (
            functools.partial(function, outputs, params) for function in (in_float32, in_float64)
        )
        return Deployment(graph, "", {}, {}, live, reference)


@functools.cache
def policy_of(kind):
    if kind in PPO_KINDS:
        space, changes = PPO_KINDS[kind]
        return policy_for(space, **changes)
    if kind == "recurrent":
        return ToyPolicy(Box(-1, 1, (2,)), recurrent=True)
    names = dict(PARTS) if kind == "parameterized" else tuple(PARTS.values())
    spaces = gymnasium.spaces
    return ToyPolicy(spaces.Dict(names) if kind == "parameterized" else spaces.Tuple(names))


@dataclass(frozen=True)
class Shipped:
    """A policy, its files by format, their runners, and what the policy does on 4,096 observations."""

    policy: Any
    files: dict[str, Path]
    runners: dict[str, Any]
    trial: Trial


@functools.cache
def shipped(kind):
    """Export a policy in every format, once."""
    folder = Path(tempfile.mkdtemp(prefix="shipped-"))
    policy = policy_of(kind)
    files = {name: export_policy(policy, folder / f"policy.{name}") for name in FORMATS}
    return Shipped(
        policy, files, {name: open_runner(f) for name, f in files.items()}, make_trial(policy.deployment())
    )
