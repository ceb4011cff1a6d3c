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

from dressage.equations.statistics import RunningMoments
from dressage.export import FORMATS, export_policy
from dressage.export.exporting import Trial, make_trial, open_runner
from dressage.learning.architecture import Architecture
from dressage.learning.forward import init_network
from dressage.learning.group_spaces import GroupSpaces
from dressage.learning.records import AgentState
from dressage.rl.adapters import ParameterizedPolicyAdapter, PolicyAdapter, trained_adapter
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
OBSERVED = Box(-np.inf, np.inf, (3,))
PARTS = {"go": Discrete(3, start=1), "force": Box(-np.inf, np.inf, (2,)), "flags": MultiBinary(2)}
MASKED = gymnasium.spaces.Dict({"seen": OBSERVED, "action_mask": MultiBinary(4)})
CHOICES = gymnasium.spaces.MultiDiscrete([2, 3], start=[0, 5])
MASKS = gymnasium.spaces.Tuple([MultiBinary(2), MultiBinary(3)])
MASKED_PARTS = gymnasium.spaces.Dict({"a": Discrete(3), "b": OBSERVED, "action_mask": MASKS})
AGENT_KINDS = {
    "agent": (OBSERVED, Discrete(4, start=2), Architecture((8,), "elu")),
    "recurrent agent": (OBSERVED, Box(-1, 1, (2,)), Architecture((6, 5), "relu", recurrent=True)),
    "recurrent choices": (MASKED, Discrete(4), Architecture((5,), recurrent=True)),
    "masked agent": (MASKED_PARTS, CHOICES, Architecture((8, 8))),
    "parameterized": (OBSERVED, gymnasium.spaces.Dict(PARTS), Architecture((8,))),
    "parameterized tuple": (OBSERVED, gymnasium.spaces.Tuple(tuple(PARTS.values())), Architecture((8,))),
}
KINDS = (*PPO_KINDS, *AGENT_KINDS)


def agent_policy(kind, *, normalized=True):
    """Put an agent's policy with drawn parameters together, as the learners do."""
    observation_space, action_space, architecture = AGENT_KINDS[kind]
    spaces = GroupSpaces.of(("left",), observation_space, action_space)
    network = architecture.network(spaces.spec)
    params = init_network(network, jax.random.key(0), spaces.spec.obs_dim)
    last = "head" if architecture.recurrent else f"Dense_{len(architecture.hidden_sizes)}"
    actor = params["params"]["actor"]
    # A hundred times the first outputs, so that actions differ.
    actor[last] = jax.tree.map(lambda leaf: 100 * leaf + 0.1, actor[last])
    size = spaces.spec.obs_dim
    moments = RunningMoments(jnp.float32(1000), jnp.full(size, 50.0), jnp.full(size, 400.0))
    state = AgentState(params, (), jnp.zeros(()), jnp.int32(0), moments if normalized else None)
    of_parts = "parameterized" in kind
    return trained_adapter(
        ParameterizedPolicyAdapter if of_parts else PolicyAdapter, "left", spaces, network, state
    )


@functools.cache
def policy_of(kind):
    if kind in AGENT_KINDS:
        return agent_policy(kind, normalized=kind != "parameterized")
    space, changes = PPO_KINDS[kind]
    return policy_for(space, **changes)


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
