"""The deployable policy: a pytree that acts, in a robot loop as well as under `jit`, `vmap` and `scan`."""

from pathlib import Path
from typing import Any, Self

import jax.numpy as jnp
from flax import struct
from jax import Array
from jax.typing import ArrayLike

from dressage.equations.statistics import RunningMoments
from dressage.learning.policy_head import PolicyHead, SquashState
from dressage.learning.proximal import OBSERVATION_CLIP
from dressage.learning.specs import AgentSpec, ObservationLayout
from dressage.networks import Actor, Critic
from dressage.ppo.records import Base


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
        spec: The agent's spaces.
        layout: How an observation is flattened.
    """

    act_scaling: SquashState | None
    obs_scaling: NormalizeVec | None
    model: dict[str, dict[str, Any]]
    hidden_activation: str = struct.field(pytree_node=False)
    output_activation: str = struct.field(pytree_node=False)
    state_independent_std: bool = struct.field(pytree_node=False)
    spec: AgentSpec = struct.field(pytree_node=False)
    layout: ObservationLayout = struct.field(pytree_node=False)

    def apply_actor(self, norm_obs: ArrayLike, rng: Array | None = None) -> Array:
        """Apply the actor to normalised observations.

        Args:
            norm_obs: `[..., obs_dim]`, standardised already where the policy has statistics.
            rng: Samples an action; None gives the most likely one.

        Returns:
            The unscaled action: `[..., action_dim]` before squashing or clipping, or category indices from 0.
        """
        head = self._head()
        distribution = head.distribution(
            self._actor().apply({"params": self.model["actor"]}, jnp.asarray(norm_obs))
        )
        return distribution.mode() if rng is None else distribution.sample(rng)

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
            return self._head().environment_action(action)
        return self.act_scaling.unsquash(action).reshape(*action.shape[:-1], *self.spec.action_shape)

    def value(self, obs: ArrayLike) -> Array:
        """Return the critic's estimate `[...]` of the discounted return that follows raw observations."""
        critic = Critic(self._hidden_sizes("critic"), self.hidden_activation)
        values: Array = critic.apply({"params": self.model["critic"]}, self._normalized(obs))
        return values

    def save(self, folder: str | Path) -> None:
        """Write weights (safetensors) and description (JSON) into a folder.

        Killed at any moment, the folder holds the policy that was there before or this one.
        """
        from dressage.ppo.policy_files import save_policy

        save_policy(self, Path(folder))

    @classmethod
    def load(cls, folder: str | Path) -> "Policy":
        """Read a policy that `save` wrote.

        Raises:
            CheckpointError: If a file is missing, cut short or altered.
        """
        from dressage.ppo.policy_files import load_policy

        return load_policy(Path(folder))

    def _normalized(self, obs: Any) -> Array:  # noqa: ANN401 (an observation may be a tree)
        features = self._features(obs)
        return features if self.obs_scaling is None else self.obs_scaling.normalize(features)

    def _features(self, obs: Any) -> Array:  # noqa: ANN401
        if self.layout.kind == "box":
            shape, own, size = jnp.shape(obs), self.layout.shape, self.spec.obs_dim
            in_own_shape = len(shape) >= len(own) and shape[len(shape) - len(own) :] == own
            if not in_own_shape and shape[-1:] != (size,):
                raise ValueError(
                    f"The policy takes observations of shape {own} or of length {size}, got shape {shape}."
                )
            if not in_own_shape:
                return jnp.asarray(obs, jnp.float32)
        return self.layout.flatten(obs)

    def _head(self) -> PolicyHead:
        return PolicyHead(self.spec, squash=self.act_scaling is not None and self.act_scaling.squash)

    def _actor(self) -> Actor:
        return Actor(
            output_size=self.spec.action_dim,
            continuous_dim=self.spec.continuous_dim,
            state_independent_std=self.state_independent_std,
            hidden_sizes=self._hidden_sizes("actor"),
            activation=self.hidden_activation,
        )

    def _hidden_sizes(self, network: str) -> tuple[int, ...]:
        layers = [name for name in self.model[network] if name.startswith("Dense_")]
        return tuple(self.model[network][f"Dense_{i}"]["bias"].shape[-1] for i in range(len(layers) - 1))
