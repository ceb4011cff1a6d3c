"""The policy head: how an actor's outputs become a distribution and its actions the environment's."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from flax import struct
from jax import Array

from dressage.equations.action_scaling import UNBOUNDED, scale_action, unscale_action
from dressage.equations.distributions import AugmentedAction, Categorical, DiagGaussian, FactoredCategorical
from dressage.learning.specs import AgentSpec

Distribution = Categorical | FactoredCategorical | DiagGaussian | AugmentedAction


class SquashState(struct.PyTreeNode):
    """How continuous policy actions map to the environment's bounds.

    Attributes:
        low: `[action_dim]` lower bounds.
        high: `[action_dim]` upper bounds.
        squash: Whether an unbounded action goes through `tanh` first; otherwise it is clipped.
    """

    low: Array
    high: Array
    squash: bool = struct.field(pytree_node=False, default=True)

    def unsquash(self, action: Array) -> Array:
        """Map a policy action `[..., action_dim]` to an environment action within the bounds.

        A squashed action is `low + (tanh(u) + 1) / 2 (high - low)`; an unsquashed one is clipped to [-1, 1]
        and scaled the same way. Without squashing, a dimension that has an infinite bound is not scaled, only
        clipped.
        """
        bounded = jnp.tanh(action) if self.squash else action
        finite = (self.low > -UNBOUNDED) & (self.high < UNBOUNDED)
        scaled = scale_action(bounded, jnp.where(finite, self.low, 0.0), jnp.where(finite, self.high, 0.0))
        return jnp.where(finite, scaled, jnp.clip(bounded, self.low, self.high))

    def scale(self, action: Array) -> Array:
        """Map an environment action within finite bounds to [-1, 1]."""
        return unscale_action(action, self.low, self.high)


@dataclass(frozen=True)
class PolicyHead:
    """The last layer of a policy, seen from outside the network.

    Attributes:
        spec: The agent's spaces.
        squash: Whether continuous actions are squashed into their bounds by `tanh`.
    """

    spec: AgentSpec
    squash: bool = False

    def distribution(self, outputs: tuple[Array, Array | None], mask: Array | None = None) -> Distribution:
        """Return the distribution over policy actions.

        Args:
            outputs: Head outputs `[..., action_dim]` and log standard deviations `[..., continuous_dim]`,
                or None.
            mask: `[..., sum(action_nvec)]` bool, True where a choice is legal.
        """
        values, log_std = outputs
        nvec = self.spec.action_nvec
        if log_std is None:
            factored = self.spec.action_kind == "multi_discrete"
            return FactoredCategorical(values, nvec, mask) if factored else Categorical(values, mask)
        logits, mean = values[..., : sum(nvec)], values[..., sum(nvec) :]
        return AugmentedAction(logits, nvec, mean, log_std, mask) if nvec else DiagGaussian(mean, log_std)

    def draw_noise(self, key: Array, batch_shape: tuple[int, ...]) -> Any:  # noqa: ANN401 (the distribution's own tree)
        """Draw all the randomness that `batch_shape` samples need, in bulk."""
        outputs = jnp.zeros(self.spec.action_dim)
        log_std = jnp.zeros(self.spec.continuous_dim) if self.spec.continuous_dim else None
        return self.distribution((outputs, log_std)).draw_noise(key, batch_shape)

    def scaling(self) -> SquashState | None:
        """Return how actions are scaled, or None where the head is discrete."""
        if self.spec.action_kind != "continuous":
            return None
        return SquashState(jnp.array(self.spec.action_low), jnp.array(self.spec.action_high), self.squash)

    def environment_action(self, actions: Any) -> Any:  # noqa: ANN401 (the action space's own tree)
        """Map policy actions to what the environment takes.

        Args:
            actions: Category indices `[...]` or `[..., components]`, unbounded numbers
                `[..., continuous_dim]`, or both for a parameterized head.

        Returns:
            `[..., *action_shape]`; a dict or tuple of parts for a parameterized head, whose continuous parts
            stay raw: bounding them is for the shield or the environment.
        """
        scaling = self.scaling()
        if scaling is not None:
            bounded = scaling.unsquash(actions)
            return bounded.reshape(*actions.shape[:-1], *self.spec.action_shape)
        if self.spec.action_kind == "discrete":
            return actions + self.spec.action_start[0]
        starts = jnp.array(self.spec.action_start, jnp.int32)
        if self.spec.action_kind == "parameterized":
            return self._parts(actions[0] + starts, actions[1])
        return (actions + starts).reshape(*actions.shape[:-1], *self.spec.action_shape)

    def _parts(self, categories: Array, parameters: Array) -> Any:  # noqa: ANN401
        """Deal components out to the parts of a Dict or Tuple action."""
        dealt: dict[str | int, Array] = {}
        for part in self.spec.action_parts:
            if part.kind == "continuous":
                taken, parameters = parameters[..., : part.size], parameters[..., part.size :]
            else:
                taken, categories = categories[..., : part.size], categories[..., part.size :]
            dealt[part.name] = taken.reshape(*taken.shape[:-1], *part.shape)
        if all(isinstance(name, int) for name in dealt):
            return tuple(dealt.values())
        return dealt
