"""Distributions over indices: one choice, and independent choices side by side."""

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from dressage.equations.distributions.base import Distribution, fill, pytree_of
from dressage.equations.precision import as_float

# Log-probability of what a mask forbids: exp gives exactly 0, while 0 * MASKED stays 0 where 0 * -inf is NaN.
MASKED = -1e30

# Up to so many categories are treated column by column: XLA's CPU reductions over so short an axis cost
# more than the arithmetic. At 8,192 samples loss and gradient of a 64-64 actor with 2 or 3 categories take
# 3 to 6 % less, with 4 nothing is gained.
_UNROLLED = 3


@pytree_of
@dataclass(frozen=True, init=False, eq=False)
class Categorical(Distribution[Array]):
    r"""One choice among n categories, $\log p_i = l_i - \log\sum_j e^{l_j}$ over the allowed ones.

    A forbidden category has probability 0 and log-probability `MASKED`. A row that allows nothing has
    probability 0 throughout, entropy 0 and the sample 0, all finite: rows of absent agents harm no other row,
    and whoever has a live agent in such a row must refuse it.

    Attributes:
        logits: `[..., n]`, as given, `MASKED` where forbidden.
        log_probs: `[..., n]`, normalised.
    """

    logits: Array  # [..., n]
    log_probs: Array  # [..., n]

    def __init__(self, logits: ArrayLike, mask: ArrayLike | None = None) -> None:
        """Normalise the logits, once.

        Args:
            logits: `[..., n]`, finite.
            mask: Bool or 0/1, broadcastable to `logits`; 1 where a category is allowed. The same mask must
                be used when acting and when learning.
        """
        logits = as_float(logits)
        if mask is None:
            fill(self, {"logits": logits, "log_probs": _log_softmax(logits)})
            return
        allowed = jnp.asarray(mask) != 0
        logits = jnp.where(allowed, logits, MASKED)
        fill(self, {"logits": logits, "log_probs": jnp.where(allowed, _log_softmax(logits), MASKED)})

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of log-probabilities and entropies."""
        return self.log_probs.shape[:-1]

    @property
    def probs(self) -> Array:
        """Probabilities, `[..., n]`."""
        return jnp.exp(self.log_probs)

    def draw_noise(self, key: Array, batch_shape: tuple[int, ...]) -> Array:
        """Draw standard Gumbel noise, `[*batch_shape, n]`."""
        return jax.random.gumbel(key, (*batch_shape, self.log_probs.shape[-1]), self.log_probs.dtype)

    def sample_from(self, noise: Array) -> Array:
        """Return the category with the largest noisy logit, `[...]` int32 (the Gumbel-max rule)."""
        # From the raw logits: the normalisation shifts all of a row alike and would only cost time.
        return jnp.argmax(self.logits + noise, axis=-1).astype(jnp.int32)

    def mode(self) -> Array:
        """Return the likeliest category, the first of equals, `[...]` int32."""
        return jnp.argmax(self.logits, axis=-1).astype(jnp.int32)

    def log_prob(self, action: ArrayLike) -> Array:
        """Return the log-probability of category indices.

        Args:
            action: `[...]`, integers in [0, n); NaN comes back for an index outside it.
        """
        index = jnp.asarray(action).astype(jnp.int32)
        shape = jnp.broadcast_shapes(self.batch_shape, index.shape)
        log_probs = jnp.broadcast_to(self.log_probs, (*shape, self.log_probs.shape[-1]))
        return _pick(log_probs, jnp.broadcast_to(index, shape))

    def entropy(self) -> Array:
        r"""Return $-\sum_i p_i \log p_i$, nats, `[...]`; forbidden categories add 0."""
        return -_sum(self.probs * self.log_probs)

    def kl(self, other: Self) -> Array:
        r"""Return $\sum_i p_i(\log p_i - \log q_i)$, nats; about 1e30 where q forbids what p does."""
        return _sum(self.probs * (self.log_probs - other.log_probs))


@pytree_of
@dataclass(frozen=True, init=False, eq=False)
class FactoredCategorical(Distribution[Array]):
    """Independent choices, one per component of a MultiDiscrete action; one head of `sum(nvec)` logits.

    Actions are zero-based indices `[..., m]`. Log-probability, entropy, divergence are sums over components.

    Attributes:
        components: The components as one batch of categoricals, `[..., m, max(nvec)]`; shorter ones end in
            categories of probability 0.
        nvec: Categories per component.
    """

    components: Categorical  # [..., m, max(nvec)]
    nvec: tuple[int, ...] = field(metadata={"static": True})

    def __init__(self, logits: ArrayLike, nvec: Sequence[int], mask: ArrayLike | None = None) -> None:
        """Cut the head into components.

        Args:
            logits: `[..., sum(nvec)]`, finite, component after component.
            nvec: Categories per component, at least one component.
            mask: `[..., sum(nvec)]`, bool or 0/1; 1 where a category is allowed.

        Raises:
            ValueError: If `nvec` is empty or the logits are not `sum(nvec)` wide.
        """
        sizes = tuple(int(n) for n in nvec)
        logits = as_float(logits)
        if not sizes or logits.shape[-1] != sum(sizes):
            raise ValueError(f"nvec {sizes} needs {sum(sizes)} logits (and a component), got {logits.shape}.")
        if mask is not None:
            allowed = jnp.broadcast_to(jnp.asarray(mask) != 0, logits.shape)
            components = Categorical(_stack(logits, sizes, MASKED), _stack(allowed, sizes, False))
        else:
            components = Categorical(_stack(logits, sizes, MASKED))
        fill(self, {"components": components, "nvec": sizes})

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of log-probabilities and entropies."""
        return self.components.batch_shape[:-1]

    def component_probs(self) -> tuple[Array, ...]:
        """Return each component's probabilities, `[..., n_i]`, rows summing to 1."""
        probs = self.components.probs
        return tuple(probs[..., i, :size] for i, size in enumerate(self.nvec))

    def draw_noise(self, key: Array, batch_shape: tuple[int, ...]) -> Array:
        """Draw standard Gumbel noise, `[*batch_shape, m, max(nvec)]`."""
        return self.components.draw_noise(key, (*batch_shape, len(self.nvec)))

    def sample_from(self, noise: Array) -> Array:
        """Return one index per component, `[..., m]` int32."""
        return self.components.sample_from(noise)

    def mode(self) -> Array:
        """Return the likeliest index per component, `[..., m]` int32."""
        return self.components.mode()

    def log_prob(self, action: ArrayLike) -> Array:
        """Return the joint log-probability.

        Args:
            action: `[..., m]`, zero-based indices.
        """
        return jnp.sum(self.components.log_prob(action), axis=-1)

    def entropy(self) -> Array:
        """Return the sum of the components' entropies, nats, `[...]`."""
        return jnp.sum(self.components.entropy(), axis=-1)

    def kl(self, other: Self) -> Array:
        """Return the sum of the components' divergences, nats, `[...]`."""
        return jnp.sum(self.components.kl(other.components), axis=-1)


def _log_softmax(logits: Array) -> Array:
    if logits.shape[-1] > _UNROLLED:
        return jax.nn.log_softmax(logits)
    largest = functools.reduce(jnp.maximum, _columns(logits))
    shifted = logits - jax.lax.stop_gradient(largest)[..., None]
    return shifted - jnp.log(_sum(jnp.exp(shifted)))[..., None]


def _pick(log_probs: Array, index: Array) -> Array:
    """Return each row's entry at an index, NaN where the index is out of range."""
    if log_probs.shape[-1] > _UNROLLED:
        # Negative indices would count from the end; sent past it they give NaN too.
        index = jnp.where(index < 0, log_probs.shape[-1], index)
        return jnp.take_along_axis(log_probs, index[..., None], axis=-1, mode="fill")[..., 0]
    picked = jnp.full_like(log_probs[..., 0], jnp.nan)
    for category, column in enumerate(_columns(log_probs)):
        picked = jnp.where(index == category, column, picked)
    return picked


def _sum(values: Array) -> Array:
    if values.shape[-1] > _UNROLLED:
        return jnp.sum(values, axis=-1)
    return functools.reduce(operator.add, _columns(values))


def _columns(values: Array) -> list[Array]:
    return [values[..., category] for category in range(values.shape[-1])]


def _stack(flat: Array, sizes: tuple[int, ...], filler: float | bool) -> Array:
    """Lay components of a flat last axis `[..., sum(sizes)]` under each other, `[..., m, max(sizes)]`."""
    widest = max(sizes)
    if all(size == widest for size in sizes):
        return flat.reshape((*flat.shape[:-1], len(sizes), widest))
    pieces = []
    for end, size in zip(np.cumsum(sizes), sizes, strict=True):
        pieces.append(flat[..., end - size : end])
        pieces.append(jnp.full((*flat.shape[:-1], widest - size), filler, flat.dtype))
    return jnp.concatenate(pieces, axis=-1).reshape((*flat.shape[:-1], len(sizes), widest))
