"""Distributions over real numbers: the diagonal Gaussian, plain and squashed into bounds."""

import math
from dataclasses import dataclass
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from dressage.equations.action_scaling import check_bounds, scale_action, unscale_action
from dressage.equations.distributions.base import Distribution, fill, pytree_of
from dressage.equations.precision import as_float, exp_excess

# One range for sampling, density, entropy and divergence. Deviations from 2e-9 to 2.2e4 keep the square of a
# standardised difference inside float32; exp(-104) would be 0 and exp(89) infinite.
LOG_STD_MIN = -20.0
LOG_STD_MAX = 10.0

# Nearest to +-1 that a normalised action is taken for when its unsquashed value has to be recovered.
SATURATION = 1.0 - 1e-6

_LOG_TWO_PI = math.log(2 * math.pi)
_LOG_TWO = math.log(2)


@pytree_of
@dataclass(frozen=True, init=False, eq=False)
class DiagGaussian(Distribution[Array]):
    r"""Independent normal dimensions.

    $$\log p(a) = -\sum_d \big[\tfrac12 z_d^2 + \log\sigma_d + \tfrac12\log 2\pi\big],
      \qquad z_d = (a_d - \mu_d)/\sigma_d$$

    `log_std` is clipped to [`LOG_STD_MIN`, `LOG_STD_MAX`], so that the deviation is positive and finite
    whatever an optimiser reaches; outside the range its gradient is 0.

    Attributes:
        mean: `[..., D]`.
        log_std: `[D]` or `[..., D]`, clipped; a deviation shared by the batch is kept once.
    """

    mean: Array  # [..., D]
    log_std: Array  # [D] or [..., D]

    def __init__(self, mean: ArrayLike, log_std: ArrayLike) -> None:
        """Clip the deviation.

        Args:
            mean: `[..., D]`, at least one axis.
            log_std: Broadcastable to `mean`.
        """
        mean, log_std = as_float(mean), jnp.clip(as_float(log_std), LOG_STD_MIN, LOG_STD_MAX)
        (dimension,) = jnp.broadcast_shapes(mean.shape[-1:], log_std.shape[-1:])
        mean = jnp.broadcast_to(mean, (*mean.shape[:-1], dimension))
        log_std = jnp.broadcast_to(log_std, (*log_std.shape[:-1], dimension))
        fill(self, {"mean": mean, "log_std": log_std})

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of log-probabilities and entropies."""
        return jnp.broadcast_shapes(self.mean.shape, self.log_std.shape)[:-1]

    @property
    def std(self) -> Array:
        """Deviation, as `log_std`; positive and finite."""
        return jnp.exp(self.log_std)

    def draw_noise(self, key: Array, batch_shape: tuple[int, ...]) -> Array:
        """Draw standard normal noise, `[*batch_shape, D]`."""
        return jax.random.normal(key, (*batch_shape, self.mean.shape[-1]), self.mean.dtype)

    def sample_from(self, noise: Array) -> Array:
        """Return mean + std * noise, `[..., D]`."""
        return self.mean + self.std * noise

    def mode(self) -> Array:
        """Return the mean, `[..., D]`."""
        return jnp.broadcast_to(self.mean, (*self.batch_shape, self.mean.shape[-1]))

    def log_prob(self, action: ArrayLike) -> Array:
        """Return the log-density.

        Args:
            action: `[..., D]`, as sampled: not clipped to any bounds.
        """
        z = (as_float(action) - self.mean) * jnp.exp(-self.log_std)
        return -0.5 * jnp.sum(z**2, axis=-1) - self._log_scale()

    def entropy(self) -> Array:
        r"""Return $\sum_d \log\sigma_d + \tfrac12\log 2\pi e$, nats, `[...]`."""
        return jnp.broadcast_to(self._log_scale() + 0.5 * self.mean.shape[-1], self.batch_shape)

    def kl(self, other: Self) -> Array:
        r"""Return KL(self || other), nats, `[...]`.

        $$\sum_d \log\frac{\sigma'_d}{\sigma_d}
          + \frac{\sigma_d^2 + (\mu_d - \mu'_d)^2}{2\sigma_d'^2} - \tfrac12$$

        Args:
            other: A Gaussian of the same dimensions (the primed symbols).
        """
        growth = 2 * (self.log_std - other.log_std)
        z = (self.mean - other.mean) * jnp.exp(-other.log_std)
        return 0.5 * jnp.sum(exp_excess(growth) + z**2, axis=-1)

    def _log_scale(self) -> Array:
        return jnp.sum(self.log_std, axis=-1) + 0.5 * self.mean.shape[-1] * _LOG_TWO_PI


@pytree_of
@dataclass(frozen=True, init=False, eq=False)
class SquashedGaussian(Distribution[Array]):
    r"""A Gaussian squashed into bounds, $a = low + \tfrac12(\tanh u + 1)(high - low)$.

    Samples, modes and arguments of `log_prob` are the *unsquashed* `u`, which is what must be stored: float32
    `tanh` is exactly 1 from 10 on, so `u` cannot be recovered from an action. `squash` makes the action.

    Attributes:
        base: The Gaussian of `u`, `[..., D]`.
        low: `[D]`, lower bounds of the action.
        high: `[D]`, upper bounds of the action.
    """

    base: DiagGaussian  # [..., D]
    low: Array  # [D]
    high: Array  # [D]

    def __init__(self, mean: ArrayLike, log_std: ArrayLike, low: ArrayLike, high: ArrayLike) -> None:
        """Take the Gaussian and the bounds.

        Args:
            mean: `[..., D]`, of `u`.
            log_std: Broadcastable to `mean`, of `u`.
            low: Broadcastable to `[D]`, finite.
            high: Broadcastable to `[D]`, finite, above `low`.

        Raises:
            ConfigError: If the bounds are concrete and infinite, equal or NaN; the text names the dimension.
        """
        if not isinstance(low, jax.core.Tracer) and not isinstance(high, jax.core.Tracer):
            lows, highs = np.broadcast_arrays(np.asarray(low), np.asarray(high))
            check_bounds(lows, highs, squash=True)
        fill(self, {"base": DiagGaussian(mean, log_std), "low": as_float(low), "high": as_float(high)})

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of log-probabilities and entropies."""
        return self.base.batch_shape

    def squash(self, u: ArrayLike) -> Array:
        """Return the action of `u`, `[..., D]`, inside the bounds always."""
        return scale_action(jnp.tanh(as_float(u)), self.low, self.high)

    def unsquash(self, action: ArrayLike) -> Array:
        """Return a `u` of an action, `[..., D]`, for where only the action is known.

        The normalised action is clipped to +-`SATURATION` first (|u| <= 7.3), so that an action at a bound
        has a finite, if arbitrary, `u`.
        """
        normalized = unscale_action(action, self.low, self.high)
        return jnp.arctanh(jnp.clip(normalized, -SATURATION, SATURATION))

    def draw_noise(self, key: Array, batch_shape: tuple[int, ...]) -> Array:
        """Draw standard normal noise, `[*batch_shape, D]`."""
        return self.base.draw_noise(key, batch_shape)

    def sample_from(self, noise: Array) -> Array:
        """Return `u`, unsquashed, `[..., D]`."""
        return self.base.sample_from(noise)

    def mode(self) -> Array:
        """Return the mean of `u`, unsquashed, `[..., D]`."""
        return self.base.mode()

    def log_prob(self, u: ArrayLike) -> Array:
        r"""Return the log-density of the squashed action that `u` stands for.

        $$\log p(a) = \log N(u;\mu,\sigma)
          - \sum_d \big[2(\log 2 - u_d - \mathrm{softplus}(-2u_d)) + \log\tfrac{high_d - low_d}{2}\big]$$

        Args:
            u: `[..., D]`, unsquashed.

        Reference:
            Haarnoja et al. 2018, "Soft Actor-Critic", appendix C, equation 21; the derivative of tanh in the
            form that neither overflows nor loses its gradient.
        """
        u = as_float(u)
        log_slope = 2 * (_LOG_TWO - u - jax.nn.softplus(-2 * u)) + jnp.log(0.5 * self.high - 0.5 * self.low)
        return self.base.log_prob(u) - jnp.sum(log_slope, axis=-1)

    def entropy(self) -> Array:
        """Return the entropy of the *base Gaussian*, nats, `[...]`; the squashed one has no closed form.

        It serves as entropy bonus: it rewards width before squashing.
        """
        return self.base.entropy()

    def kl(self, other: Self) -> Array:
        """Return KL(self || other), nats, `[...]`; squashing leaves it equal to the base Gaussians'.

        Args:
            other: A squashed Gaussian with the same bounds.

        Raises:
            ValueError: If the bounds are concrete and differ.
        """
        pairs = ((self.low, other.low), (self.high, other.high))
        for ours, theirs in pairs:
            traced = isinstance(ours, jax.core.Tracer) or isinstance(theirs, jax.core.Tracer)
            if not traced and not np.all(np.asarray(ours) == np.asarray(theirs)):
                raise ValueError(f"KL needs equal bounds, got {ours} and {theirs}: the supports differ.")
        return self.base.kl(other.base)
