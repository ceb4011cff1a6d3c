"""The deployable policy: a pytree that acts, in a robot loop as well as under `jit`, `vmap` and `scan`."""

import dataclasses
import math
from pathlib import Path
from typing import Any, Self, cast

import jax.numpy as jnp
from flax import struct
from flax.traverse_util import flatten_dict, unflatten_dict
from jax import Array
from jax.typing import ArrayLike

from dressage.equations.statistics import RunningMoments
from dressage.learning.policy_head import PolicyHead, SquashState
from dressage.learning.proximal import OBSERVATION_CLIP
from dressage.learning.specs import AGENT, AgentSpec, ObservationLayout, layout_from_json, spec_from_json
from dressage.networks import Actor, Critic, apply_actor, apply_critic
from dressage.ppo.policy_files import read_files, write_files
from dressage.ppo.records import Base

MOMENTS = "observation_moments"


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
        return RunningMoments(self.count, self.mean, self.var).normalize(x, self.clip)

    def denormalize(self, x: ArrayLike) -> Array:
        """Undo `normalize` for values that were not clipped."""
        return RunningMoments(self.count, self.mean, self.var).denormalize(x)


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
        return self.act_scaling.unsquash(action).reshape(*action.shape[:-1], *self._spec().action_shape)

    def value(self, obs: ArrayLike) -> Array:
        """Return the critic's estimate `[...]` of the discounted return that follows raw observations."""
        critic = Critic(self._hidden_sizes("critic"), self.hidden_activation)
        return apply_critic(critic, self.model["critic"], self._normalized(obs))

    def save(self, folder: str | Path) -> None:
        """Write weights (safetensors) and description (JSON) into a folder.

        Killed at any moment, the folder holds the policy that was there before or this one.
        """
        spec, layout = self._spec(), self._layout()
        description = {
            "hidden_activation": self.hidden_activation,
            "output_activation": self.output_activation,
            "state_independent_std": self.state_independent_std,
            "squash": self.act_scaling is not None and self.act_scaling.squash,
            "observation_clip": None if self.obs_scaling is None else self.obs_scaling.clip,
            "spec": dataclasses.asdict(spec),
            "layout": dataclasses.asdict(layout),
        }
        tensors = flatten_dict(self.model, sep="/")
        if self.obs_scaling is not None:
            for name in ("mean", "var", "count"):
                tensors[f"{MOMENTS}/{name}"] = getattr(self.obs_scaling, name)
        write_files(Path(folder), description, tensors)

    @classmethod
    def load(cls, folder: str | Path) -> "Policy":
        """Read a policy that `save` wrote.

        Raises:
            CheckpointError: If a file is missing, cut short or altered.
        """
        description, tensors = read_files(Path(folder))
        model = unflatten_dict({name: jnp.asarray(array) for name, array in tensors.items()}, sep="/")
        moments = model.pop(MOMENTS, None)
        spec = spec_from_json(description["spec"])
        scaling = None
        if spec.action_kind == "continuous":
            low, high = jnp.array(spec.action_low), jnp.array(spec.action_high)
            scaling = SquashState(low, high, description["squash"])
        return cls(
            act_scaling=scaling,
            obs_scaling=None
            if moments is None
            else NormalizeVec(**moments, clip=description["observation_clip"]),
            model=model,
            hidden_activation=description["hidden_activation"],
            output_activation=description["output_activation"],
            state_independent_std=description["state_independent_std"],
            spec=spec,
            layout=layout_from_json(description["layout"]),
        )

    def _normalized(self, obs: Any) -> Array:  # noqa: ANN401 (an observation may be a tree)
        features = self._features(obs)
        return features if self.obs_scaling is None else self.obs_scaling.normalize(features)

    def _features(self, obs: Any) -> Array:  # noqa: ANN401
        if self._layout().kind == "box":
            obs = jnp.asarray(obs)
            shape, own, size = obs.shape, self._layout().shape, self._spec().obs_dim
            in_own_shape = len(shape) >= len(own) and shape[len(shape) - len(own) :] == own
            if not in_own_shape and shape[-1:] != (size,):
                raise ValueError(
                    f"The policy takes observations of shape {own} or of length {size}, got shape {shape}."
                )
            if not in_own_shape:
                return jnp.asarray(obs, jnp.float32)
        return self._layout().flatten(obs)

    def _spec(self) -> AgentSpec:
        """The agent's spaces; read off the parameters where none were given."""
        if self.spec is not None:
            return self.spec
        layers = self._hidden_sizes("actor")
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
        return ObservationLayout("box", (self._spec().obs_dim,)) if self.layout is None else self.layout

    def _head(self) -> PolicyHead:
        return PolicyHead(self._spec(), squash=self.act_scaling is not None and self.act_scaling.squash)

    def _actor(self) -> Actor:
        return Actor(
            output_size=self._spec().action_dim,
            continuous_dim=self._spec().continuous_dim,
            state_independent_std=self.state_independent_std,
            hidden_sizes=self._hidden_sizes("actor"),
            activation=self.hidden_activation,
        )

    def _hidden_sizes(self, network: str) -> tuple[int, ...]:
        layers = [name for name in self.model[network] if name.startswith("Dense_")]
        return tuple(self.model[network][f"Dense_{i}"]["bias"].shape[-1] for i in range(len(layers) - 1))
