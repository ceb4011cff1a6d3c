"""What the files of an agent's trained policy are made of, and the way back from them."""

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jax import Array

from dressage.equations.statistics import RunningMoments
from dressage.errors import ConfigError
from dressage.learning.architecture import Architecture
from dressage.learning.forward import Network
from dressage.learning.graph_building import (
    OBSERVATION,
    STATE,
    add_head,
    add_mask,
    add_normalization,
    add_observation,
    add_perceptron,
    add_recurrent_tower,
)
from dressage.learning.group_spaces import GroupSpaces
from dressage.learning.live_policy import in_float32, in_float64, named_probabilities, observation_tree
from dressage.learning.policy_graph import Deployment, GraphDraft, PolicyGraph
from dressage.learning.policy_head import PolicyHead
from dressage.learning.proximal import OBSERVATION_CLIP
from dressage.learning.records import Observed
from dressage.learning.space_files import space_from_json, space_to_json
from dressage.networks import ActorCritic, RecurrentActorCritic
from dressage.workers import ACTION_MASK

MOMENTS = "observation_moments"
LOADER = "adapter"


@dataclasses.dataclass(frozen=True)
class TrainedAgent:
    """A trained policy in parts.

    Attributes:
        kind: Name of the adapter's class.
        agent: The agent's name.
        network: The actor-critic.
        params: Its parameters (`network`) and the observation statistics (`moments`, or None).
        spaces: The agent's spaces.
        squash: Whether continuous actions are squashed.
        step: Maps parameters, features and memory to memory and head outputs, as the adapter acts.
    """

    kind: str
    agent: str
    network: Network
    params: dict[str, Any]
    spaces: GroupSpaces
    squash: bool
    step: Any

    def deployment(self) -> Deployment:
        """Return what the policy's files are made of.

        Raises:
            ConfigError: If the network is not one that `Architecture` makes.
        """
        architecture = architecture_of(self.agent, self.network)
        tensors = dict(flatten_dict(self.params["network"]["params"], sep="/"))
        moments: RunningMoments | None = self.params["moments"]
        if moments is not None:
            tensors |= {f"{MOMENTS}/{name}": getattr(moments, name) for name in ("count", "mean", "var")}
        description = {
            "class": self.kind,
            "agent": self.agent,
            "architecture": dataclasses.asdict(architecture),
            "observation_space": space_to_json(self.spaces.observation_space),
            "action_space": space_to_json(self.spaces.action_space),
            "squash": self.squash,
        }
        outputs = jax.jit(partial(_outputs, self))
        return Deployment(
            graph=self.graph(),
            loader=LOADER,
            description=description,
            tensors={name: np.asarray(array) for name, array in tensors.items()},
            outputs=partial(in_float32, outputs, self.params),
            reference=partial(in_float64, outputs, self.params),
            # A recurrent critic remembers alongside the actor, by the same call.
            training_only=None if isinstance(self.network, RecurrentActorCritic) else "critic/",
        )

    def graph(self) -> PolicyGraph:
        """Return what the policy computes from a raw observation, as a list of named operations."""
        draft, spaces = GraphDraft(), self.spaces
        value, mask = _take_observation(draft, spaces)
        moments, layers = self.params["moments"], self.params["network"]["params"]["actor"]
        if moments is not None:
            value = add_normalization(draft, value, moments.mean, moments.std, OBSERVATION_CLIP)
        if isinstance(self.network, RecurrentActorCritic):
            value = add_recurrent_tower(draft, value, layers, self.network.activation)
        else:
            value = add_perceptron(draft, value, layers, self.network.actor.activation)
        return draft.finish(add_head(draft, value, spaces.spec, squash=self.squash, mask=mask))


def agent_from_tensors(
    description: Mapping[str, Any], tensors: Mapping[str, np.ndarray]
) -> tuple[GroupSpaces, Network, dict[str, Any], RunningMoments | None]:
    """Rebuild spaces, network, parameters and statistics from what a file holds."""
    spaces = GroupSpaces.of(
        (description["agent"],),
        space_from_json(description["observation_space"]),
        space_from_json(description["action_space"]),
    )
    shape = description["architecture"]
    network = Architecture(**shape | {"hidden_sizes": tuple(shape["hidden_sizes"])}).network(spaces.spec)
    arrays = unflatten_dict({name: jnp.asarray(array) for name, array in tensors.items()}, sep="/")
    moments = arrays.get(MOMENTS)
    params = {name: arrays[name] for name in ("actor", "critic", "log_std") if name in arrays}
    return spaces, network, {"params": params}, None if moments is None else RunningMoments(**moments)


def _outputs(trained: TrainedAgent, params: dict[str, Any], inputs: dict[str, Array]) -> dict[str, Any]:
    """Act as the adapter does, with memory going in and out."""
    observed, made, memory = _observe(trained.spaces, inputs), {}, None
    if isinstance(trained.network, RecurrentActorCritic):
        memory = (inputs[STATE], jnp.zeros_like(inputs[STATE]))
    memory, outputs = trained.step(params, observed.features, memory)
    if memory is not None:
        made[f"next_{STATE}"] = memory[0]
    head = PolicyHead(trained.spaces.spec, trained.squash)
    distribution = head.distribution(outputs, observed.action_mask)
    action = head.environment_action(distribution.mode())
    if not isinstance(action, dict | tuple):
        made["action"] = action
    else:
        parts = action.items() if isinstance(action, dict) else enumerate(action)
        made |= {f"action.{name}": part for name, part in parts}
    return made | named_probabilities(distribution)


def _observe(spaces: GroupSpaces, inputs: Mapping[str, Array]) -> Observed:
    """Put the graph's inputs together to the environment's observation, and let the learner look at it."""
    seen = observation_tree(spaces.layout, inputs, _name_of_rest(spaces))
    if not spaces.masked:
        return spaces.observe(seen)
    name = f"{OBSERVATION}.{ACTION_MASK}"
    shapes, tree = _mask_shapes(spaces)
    mask = tuple(inputs[f"{name}.{i}"] for i in range(len(shapes))) if tree else inputs[name]
    return Observed(spaces.layout.flatten(seen), spaces.mask(mask))


def _take_observation(draft: GraphDraft, spaces: GroupSpaces) -> tuple[str, str | None]:
    value = add_observation(draft, spaces.layout, _name_of_rest(spaces))
    if not spaces.masked:
        return value, None
    shapes, tree = _mask_shapes(spaces)
    return value, add_mask(draft, shapes, f"{OBSERVATION}.{ACTION_MASK}", tree=tree)


def _name_of_rest(spaces: GroupSpaces) -> str:
    """Name what stands beside the mask: itself where it is one part, all parts under one name otherwise."""
    if not spaces.bare:
        return OBSERVATION
    assert isinstance(spaces.observation_space, gymnasium.spaces.Dict), "only a Dict carries a mask"
    (key,) = [name for name in spaces.observation_space.spaces if name != ACTION_MASK]
    return f"{OBSERVATION}.{key}"


def _mask_shapes(spaces: GroupSpaces) -> tuple[list[tuple[int, ...]], bool]:
    assert isinstance(spaces.observation_space, gymnasium.spaces.Dict), "only a Dict carries a mask"
    mask = spaces.observation_space.spaces[ACTION_MASK]
    tree = isinstance(mask, gymnasium.spaces.Tuple)
    parts = mask.spaces if isinstance(mask, gymnasium.spaces.Tuple) else (mask,)
    return [tuple(part.shape or ()) for part in parts], tree


def architecture_of(agent: str, network: Any) -> Architecture:  # noqa: ANN401 (whatever an adapter holds)
    """Return the shape of a network that `Architecture` makes.

    Raises:
        ConfigError: If it is none.
    """
    if isinstance(network, RecurrentActorCritic):
        return Architecture(network.hidden_sizes, network.activation, network.kernel_init, recurrent=True)
    if isinstance(network, ActorCritic):
        actor, critic = network.actor, network.critic
        shape = (actor.hidden_sizes, actor.activation, actor.kernel_init)
        alike = shape == (critic.hidden_sizes, critic.activation, critic.kernel_init)
        if alike and actor.state_independent_std:
            return Architecture(*shape)
    raise ConfigError(
        f"The policy of agent {agent!r} cannot be exported: what its network computes is not known, only how "
        "to call it. Policies that the learners return can be."
    )
