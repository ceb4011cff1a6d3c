"""The distribution of actions with a discrete and a raw continuous part."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from dressage.equations.distributions.base import Distribution, fill, pytree_of
from dressage.equations.distributions.categorical import FactoredCategorical
from dressage.equations.distributions.gaussian import DiagGaussian


@pytree_of
@dataclass(frozen=True, init=False, eq=False)
class AugmentedAction(Distribution[tuple[Array, Array]]):
    """Discrete components together with raw (unbounded) Gaussian parameters; action = `(indices, z)`.

    Log-probability, entropy and divergence are the exact sums of both parts: bounding `z` is the business of
    the shield or the environment, which works on its own copy.

    Attributes:
        discrete: The choices, `[..., m]`.
        continuous: The Gaussian of `z`, `[..., D]`.
    """

    discrete: FactoredCategorical  # [..., m]
    continuous: DiagGaussian  # [..., D]

    def __init__(
        self,
        logits: ArrayLike,
        nvec: Sequence[int],
        mean: ArrayLike,
        log_std: ArrayLike,
        mask: ArrayLike | None = None,
    ) -> None:
        """Put the two parts together.

        Args:
            logits: `[..., sum(nvec)]`, finite.
            nvec: Categories per component.
            mean: `[..., D]`.
            log_std: Broadcastable to `mean`.
            mask: `[..., sum(nvec)]`, bool or 0/1; 1 where a category is allowed.
        """
        discrete = FactoredCategorical(logits, nvec, mask)
        fill(self, {"discrete": discrete, "continuous": DiagGaussian(mean, log_std)})

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of log-probabilities and entropies."""
        return jnp.broadcast_shapes(self.discrete.batch_shape, self.continuous.batch_shape)

    def component_probs(self) -> tuple[Array, ...]:
        """Return each discrete component's probabilities, `[..., n_i]`, rows summing to 1."""
        return self.discrete.component_probs()

    def draw_noise(self, key: Array, batch_shape: tuple[int, ...]) -> tuple[Array, Array]:
        """Draw Gumbel noise `[*batch_shape, m, max(nvec)]` and normal noise `[*batch_shape, D]`."""
        discrete_key, continuous_key = jax.random.split(key)
        return (
            self.discrete.draw_noise(discrete_key, batch_shape),
            self.continuous.draw_noise(continuous_key, batch_shape),
        )

    def sample_from(self, noise: tuple[Array, Array]) -> tuple[Array, Array]:
        """Return indices `[..., m]` int32 and `z` `[..., D]`."""
        return self.discrete.sample_from(noise[0]), self.continuous.sample_from(noise[1])

    def mode(self) -> tuple[Array, Array]:
        """Return the likeliest indices and the mean."""
        return self.discrete.mode(), self.continuous.mode()

    def log_prob(self, action: tuple[ArrayLike, ArrayLike]) -> Array:
        """Return the joint log-density.

        Args:
            action: `(indices [..., m], z [..., D])`, before any shield.
        """
        indices, z = action
        return self.discrete.log_prob(indices) + self.continuous.log_prob(z)

    def entropy(self) -> Array:
        """Return the sum of both parts' entropies, nats, `[...]`."""
        return self.discrete.entropy() + self.continuous.entropy()

    def kl(self, other: Self) -> Array:
        """Return the sum of both parts' divergences, nats, `[...]`."""
        return self.discrete.kl(other.discrete) + self.continuous.kl(other.continuous)
