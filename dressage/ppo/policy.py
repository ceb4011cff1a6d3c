"""The deployable policy: a pytree that acts, in a robot loop as well as under `jit`, `vmap` and `scan`."""

import dataclasses
import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Self, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from flax.traverse_util import flatten_dict, unflatten_dict
from jax import Array
from jax.typing import ArrayLike

from dressage.equations.statistics import RunningMoments
from dressage.errors import CheckpointError
from dressage.learning.graph_building import (
    add_head,
    add_normalization,
    add_observation,
    add_perceptron,
)
from dressage.learning.live_policy import (
    in_float32,
    in_float64,
    named_probabilities,
    observation_tree,
)
from dressage.learning.policy_files import FILE, read_policy_file, write_policy_file
from dressage.learning.policy_graph import Deployment, GraphDraft, PolicyGraph
from dressage.learning.policy_head import PolicyHead, SquashState
from dressage.learning.proximal import OBSERVATION_CLIP
from dressage.learning.specs import (
    AGENT,
    AgentSpec,
    ObservationLayout,
    layout_from_json,
    spec_from_json,
    spec_to_json,
)
from dressage.networks import Actor, Critic, apply_actor, apply_critic
from dressage.ppo.records import Base

MOMENTS = "observation_moments"
BOUNDS = "action_bounds"


class NormalizeVec(Base):
    """Frozen statistics that standardise observations.

    Attributes:
        mean: `[obs_dim]`.
        var: `[obs_dim]`, population variance.
        count: `[]` samples that the statistics come from.
        clip: Bound of the standardised observation, in standard deviations.
    """

    mean: Array
    var: Array
    count: Array
    clip: float = struct.field(pytree_node=False, default=OBSERVATION_CLIP)

    @classmethod
    def of(cls, moments: RunningMoments | None) -> Self | None:
        """Freeze running statistics; None stays None."""
        return None if moments is None else cls(moments.mean, moments.var, moments.count)

    def normalize(self, x: ArrayLike) -> Array:
        """Standardise raw observations `[..., obs_dim]` and clip them to ±`clip`."""
        return self.moments().normalize(x, self.clip)

    def denormalize(self, x: ArrayLike) -> Array:
        """Undo `normalize` for values that were not clipped."""
        return self.moments().denormalize(x)

    def moments(self) -> RunningMoments:
        """Return the statistics as those that training goes on from."""
        return RunningMoments(self.count, self.mean, self.var)


class Policy(Base):
    """A trained policy with all that it needs to act.

    Attributes:
        act_scaling: How continuous actions map to the environment's bounds; None for discrete actions.
        obs_scaling: Statistics that standardise observations; None without normalisation.
        model: Parameters by network (`actor`, `critic`) and layer.
        hidden_activation: Activation of the hidden layers.
        output_activation: `gaussian` or `categorical`.
        state_independent_std: Whether `log_std` is a parameter instead of an output.
        spec: The agent's spaces; None reads their sizes off the parameters.
        layout: How an observation is flattened; None takes flat ones.
    """

    act_scaling: SquashState | None
    obs_scaling: NormalizeVec | None
    model: dict[str, dict[str, Any]]
    hidden_activation: str = struct.field(pytree_node=False)
    output_activation: str = struct.field(pytree_node=False)
    state_independent_std: bool = struct.field(pytree_node=False)
    spec: AgentSpec | None = struct.field(pytree_node=False, default=None)
    layout: ObservationLayout | None = struct.field(pytree_node=False, default=None)

    def apply_actor(self, norm_obs: ArrayLike, rng: Array | None = None) -> Array:
        """Apply the actor to normalised observations.

        Args:
            norm_obs: `[..., obs_dim]`, standardised already where the policy has statistics.
            rng: Samples an action; None gives the most likely one.

        Returns:
            The unscaled action: `[..., action_dim]` before squashing or clipping, or category indices from 0.
        """
        head = self._head()
        outputs = apply_actor(self._actor(), self.model["actor"], jnp.asarray(norm_obs))
        distribution = head.distribution(outputs)
        # Never a pair: the spaces that PPO supports are discrete throughout or continuous throughout.
        return cast("Array", distribution.mode() if rng is None else distribution.sample(rng))

    def get_action(self, obs: ArrayLike, rng: Array | None = None) -> Array:
        """Choose an action that the environment takes.

        Args:
            obs: One raw observation or a batch with leading axes, in the environment's shape or flattened.
            rng: Samples an action; None gives the most likely one.

        Returns:
            `[..., *action_shape]`, within the action space's bounds.

        Raises:
            ValueError: If the observation has another length than the policy was trained on.
        """
        action = self.apply_actor(self._normalized(obs), rng)
        if self.act_scaling is None:
            taken: Array = self._head().environment_action(action)
            return taken
        return self.act_scaling.unsquash(action).reshape(*action.shape[:-1], *self.agent_spec().action_shape)

    def value(self, obs: ArrayLike) -> Array:
        """Return the critic's estimate `[...]` of the discounted return that follows raw observations.

        Raises:
            ValueError: If the policy was exported without its critic.
        """
        if "critic" not in self.model:
            raise ValueError(
                "This policy has no critic: it was exported without. Export it with critic=True (--critic)."
            )
        critic = Critic(self.hidden_sizes("critic"), self.hidden_activation)
        return apply_critic(critic, self.model["critic"], self._normalized(obs))

    def graph(self) -> PolicyGraph:
        """Return what the policy computes from a raw observation, as a list of named operations."""
        draft = GraphDraft()
        value = add_observation(draft, self._layout())
        if self.obs_scaling is not None:
            moments = self.obs_scaling.moments()
            value = add_normalization(draft, value, moments.mean, moments.std, self.obs_scaling.clip)
        value = add_perceptron(draft, value, self.model["actor"], self.hidden_activation)
        spec, scaling = self.agent_spec(), self.act_scaling
        if spec.continuous_dim and not self.state_independent_std:
            value = draft.add("columns", [value], "mean", {"start": 0, "stop": spec.action_dim})
        bounds = None if scaling is None else (scaling.low, scaling.high)
        return draft.finish(add_head(draft, value, spec, squash=self._head().squash, bounds=bounds))

    def deployment(self) -> Deployment:
        """Return what the policy's files are made of; see `dressage.export.export_policy`."""
        description = {
            "hidden_activation": self.hidden_activation,
            "output_activation": self.output_activation,
            "state_independent_std": self.state_independent_std,
            "squash": self.act_scaling is not None and self.act_scaling.squash,
            "observation_clip": None if self.obs_scaling is None else self.obs_scaling.clip,
            "spec": spec_to_json(self.agent_spec()),
            "layout": dataclasses.asdict(self._layout()),
        }
        tensors = flatten_dict(self.model, sep="/")
        if self.obs_scaling is not None:
            for name in ("mean", "var", "count"):
                tensors[f"{MOMENTS}/{name}"] = getattr(self.obs_scaling, name)
        if self.act_scaling is not None:
            tensors |= {f"{BOUNDS}/low": self.act_scaling.low, f"{BOUNDS}/high": self.act_scaling.high}
        return Deployment(
            graph=self.graph(),
            loader="ppo",
            description=description,
            tensors={name: np.asarray(array) for name, array in tensors.items()},
            outputs=partial(in_float32, _outputs, self),
            reference=partial(in_float64, _outputs, self),
        )

    def save(self, path: str | Path) -> None:
        """Write the policy into one file: weights and description in safetensors.

        Killed at any moment, there is the policy that was there before or this one.

        Args:
            path: A file that ends in `.safetensors`, or a folder, which gets `policy.safetensors`.
        """
        description, tensors = self.deployment().file_parts()
        write_policy_file(_file_at(Path(path)), description, tensors)

    @classmethod
    def load(cls, path: str | Path) -> "Policy":
        """Read a policy that `save` or `dressage.export.export_policy` wrote.

        Raises:
            CheckpointError: If the file is missing, cut short, altered or holds no policy of this kind.
        """
        file = _file_at(Path(path))
        description, tensors = read_policy_file(file)
        if description.get("loader") != "ppo":
            raise CheckpointError(
                f"{file} holds no policy of PPO; `dressage.export.load_policy` loads others."
            )
        return cls.from_tensors(description["policy"], tensors)

    @classmethod
    def from_tensors(cls, description: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> "Policy":
        """Put a policy together from what its file holds."""
        arrays = unflatten_dict({name: jnp.asarray(array) for name, array in tensors.items()}, sep="/")
        scaling, moments = arrays.get(BOUNDS), arrays.get(MOMENTS)
        clip = description["observation_clip"]
        return cls(
            act_scaling=None if scaling is None else SquashState(**scaling, squash=description["squash"]),
            obs_scaling=None if moments is None else NormalizeVec(**moments, clip=clip),
            model={network: arrays[network] for network in ("actor", "critic") if network in arrays},
            hidden_activation=description["hidden_activation"],
            output_activation=description["output_activation"],
            state_independent_std=description["state_independent_std"],
            spec=spec_from_json(description["spec"]),
            layout=layout_from_json(description["layout"]),
        )

    def _normalized(self, obs: Any) -> Array:  # noqa: ANN401 (an observation may be a tree)
        features = self._features(obs)
        return features if self.obs_scaling is None else self.obs_scaling.normalize(features)

    def _features(self, obs: Any) -> Array:  # noqa: ANN401
        if self._layout().kind == "box":
            obs = jnp.asarray(obs)
            shape, own, size = obs.shape, self._layout().shape, self.agent_spec().obs_dim
            in_own_shape = len(shape) >= len(own) and shape[len(shape) - len(own) :] == own
            if not in_own_shape and shape[-1:] != (size,):
                raise ValueError(
                    f"The policy takes observations of shape {own} or of length {size}, got shape {shape}."
                )
            if not in_own_shape:
                return jnp.asarray(obs, jnp.float32)
        return self._layout().flatten(obs)

    def agent_spec(self) -> AgentSpec:
        """Return the agent's spaces; read off the parameters where none were given."""
        if self.spec is not None:
            return self.spec
        layers = self.hidden_sizes("actor")
        obs_dim, outputs = (
            self.model["actor"]["Dense_0"]["kernel"].shape[-2],
            self.model["actor"][f"Dense_{len(layers)}"]["bias"].shape[-1],
        )
        if self.output_activation == "categorical":
            return AgentSpec(AGENT, obs_dim, outputs, "discrete", (outputs,), (), (0,))
        size = outputs if self.state_independent_std else outputs // 2
        unbounded = (-math.inf,) * size, (math.inf,) * size
        return AgentSpec(AGENT, obs_dim, size, "continuous", (), (size,), (), size, *unbounded)

    def _layout(self) -> ObservationLayout:
        return ObservationLayout("box", (self.agent_spec().obs_dim,)) if self.layout is None else self.layout

    def _head(self) -> PolicyHead:
        return PolicyHead(self.agent_spec(), squash=self.act_scaling is not None and self.act_scaling.squash)

    def _actor(self) -> Actor:
        return Actor(
            output_size=self.agent_spec().action_dim,
            continuous_dim=self.agent_spec().continuous_dim,
            state_independent_std=self.state_independent_std,
            hidden_sizes=self.hidden_sizes("actor"),
            activation=self.hidden_activation,
        )

    def hidden_sizes(self, network: str) -> tuple[int, ...]:
        """Return the units of each hidden layer of a network, `actor` or `critic`."""
        layers = [name for name in self.model[network] if name.startswith("Dense_")]
        return tuple(self.model[network][f"Dense_{i}"]["bias"].shape[-1] for i in range(len(layers) - 1))


@jax.jit
def _outputs(policy: Policy, inputs: dict[str, Array]) -> dict[str, Array]:
    """Compute what the policy's graph computes, by the policy itself."""
    observation = observation_tree(policy._layout(), inputs)  # noqa: SLF001 (the same module)
    made = {"action": policy.get_action(observation)}
    if policy.output_activation == "gaussian":
        return made
    outputs = apply_actor(policy._actor(), policy.model["actor"], policy._normalized(observation))  # noqa: SLF001
    return made | named_probabilities(policy._head().distribution(outputs))  # noqa: SLF001


def _file_at(path: Path) -> Path:
    return path if path.suffix == ".safetensors" else path / FILE
