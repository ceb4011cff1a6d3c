"""Running mean and variance of a stream of batches, and the normaliser made of them."""

from dataclasses import dataclass
from typing import Self

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from dressage.equations.precision import as_float

# Added to every variance before the square root: a deviation below 1e-4 counts as constant.
VARIANCE_FLOOR = 1e-8


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class RunningMoments:
    r"""Count, mean and population variance of everything seen so far.

    Two summaries merge exactly (Chan's formula), so order and size of batches do not matter:

    $$n = n_a + n_b,\quad w = n_b/n,\quad \mu = \mu_a + w\,(\mu_b - \mu_a),\quad
      \sigma^2 = (1-w)\,\sigma_a^2 + w\,\sigma_b^2 + w(1-w)(\mu_b - \mu_a)^2$$

    Parallel ranks that share one snapshot summarise only their own new data (`zeros(shape).update(batch)`),
    merge these summaries and then the snapshot, once; merging the ranks' full states would count the snapshot
    several times.

    Attributes:
        count: Samples seen, scalar float. In float32 it stops growing where one batch is lighter than half a
            unit in its last place, which is where its weight no longer moves the mean either.
        mean: `[*shape]`.
        var: `[*shape]`, population variance (division by n).

    Reference:
        Chan, Golub, LeVeque 1979, "Updating Formulae and a Pairwise Algorithm for Computing Sample
        Variances"; a batch's own variance by the corrected two-pass algorithm, Chan et al.
        1983, "Algorithms for Computing the Sample Variance", equation 1.7.
    """

    count: Array  # []
    mean: Array  # [*shape]
    var: Array  # [*shape]

    @classmethod
    def zeros(cls, shape: tuple[int, ...] = ()) -> Self:
        """Return the moments of nothing: count 0, so that the first batch's moments are taken exactly.

        Args:
            shape: Shape of one sample.
        """
        return cls(count=jnp.zeros(()), mean=jnp.zeros(shape), var=jnp.zeros(shape))

    @property
    def std(self) -> Array:
        """The deviation that `normalize` divides by, `[*shape]`, > 0; 1 before any data."""
        return jnp.where(self.count > 0, jnp.sqrt(self.var + VARIANCE_FLOOR), 1.0)

    def update(self, batch: ArrayLike, valid: ArrayLike | None = None) -> Self:
        """Take in a batch of samples.

        Args:
            batch: `[..., *shape]`, any number of leading axes.
            valid: `[...]` (the leading axes), bool or 0/1; samples that are not valid leave no trace,
                whatever they hold.

        Returns:
            The moments of old and new samples together; unchanged where no sample is valid.

        Raises:
            ValueError: If the batch does not end in the moments' shape, or `valid` does not fit it.
        """
        samples = self._samples(as_float(batch))
        if samples.shape[0] == 0:
            return self
        counted = jnp.ones(samples.shape[:1], bool) if valid is None else _flags(valid, batch, samples)
        rows = counted.reshape((-1,) + (1,) * self.mean.ndim)
        number = jnp.sum(counted).astype(samples.dtype)
        divisor = jnp.maximum(number, 1)
        rough_mean = jnp.sum(jnp.where(rows, samples, 0.0), axis=0) / divisor
        # The rough mean of equal numbers is off in the last place; its own residual repairs it, and with it
        # the variance, without the cancellation of E[x^2] - E[x]^2.
        deviations = jnp.where(rows, samples - rough_mean, 0.0)
        residual = jnp.sum(deviations, axis=0) / divisor
        variance = jnp.sum(deviations**2, axis=0) / divisor - residual**2
        return self.merge(type(self)(number, rough_mean + residual, jnp.maximum(variance, 0.0)))

    def merge(self, other: Self) -> Self:
        """Return the moments of both sets of samples together; the order makes no difference.

        Args:
            other: Moments of the same shape, of samples that are not in `self`.
        """
        count = self.count + other.count
        weight = jnp.where(count > 0, other.count / jnp.where(count > 0, count, 1.0), 0.0)
        shift = other.mean - self.mean
        mean = self.mean + weight * shift
        var = (1 - weight) * self.var + weight * other.var + weight * (1 - weight) * shift**2
        return type(self)(count, mean, var)

    def normalize(self, x: ArrayLike, clip: ArrayLike = 10.0) -> Array:
        r"""Return $(x - \mu)/\sqrt{\sigma^2 + 10^{-8}}$ clipped to $\pm$ `clip`.

        A dimension that was always constant gives 0, and a finite, clipped number when it changes. Before any
        data the deviation counts as 1.

        Args:
            x: `[..., *shape]`, any number type.
            clip: Largest absolute result, > 0; infinity for none.
        """
        return jnp.clip((as_float(x) - self.mean) / self.std, -jnp.asarray(clip), clip)

    def denormalize(self, x: ArrayLike) -> Array:
        r"""Return $x\sqrt{\sigma^2 + 10^{-8}} + \mu$, the inverse of `normalize` where nothing was clipped.

        Args:
            x: `[..., *shape]`, normalised values.
        """
        return as_float(x) * self.std + self.mean

    def _samples(self, batch: Array) -> Array:
        leading = batch.ndim - self.mean.ndim
        if leading < 0 or batch.shape[leading:] != self.mean.shape:
            raise ValueError(
                f"batch of shape {batch.shape} does not end in the moments' shape {self.mean.shape}."
            )
        return batch.reshape((-1, *self.mean.shape)) if batch.size else batch.reshape((0, *self.mean.shape))


def _flags(valid: ArrayLike, batch: ArrayLike, samples: Array) -> Array:
    flags = jnp.asarray(valid)
    if flags.size != samples.shape[0]:
        raise ValueError(f"valid of shape {flags.shape} does not flag a batch of shape {jnp.shape(batch)}.")
    return flags.reshape(-1) != 0
