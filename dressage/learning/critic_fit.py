"""A critic that stands alone, fitted to returns by minibatches of Adam."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array, lax

from dressage.equations.surrogate import clipped_value_loss
from dressage.learning.flat_parameters import ravel_parameters, step_adam
from dressage.learning.minibatches import Packing, minibatch_indices
from dressage.networks import Critic, apply_critic


class CriticSamples(struct.PyTreeNode):
    """What a critic learns from, records `[T, B, ...]` or samples `[N, ...]`.

    Attributes:
        features: Observations `[..., obs_dim]`, normalised.
        returns: What to fit, `[...]`.
        values: What the critic said before, `[...]`.
        valid: `[...]` bool, which are samples; None where all are.
    """

    features: Array
    returns: Array
    values: Array
    valid: Array | None


class ValueFit(struct.PyTreeNode):
    """How a critic is fitted.

    Attributes:
        weight: Factor of the loss, >= 0.
        max_grad_norm: Norm to which gradients are clipped, > 0.
        clip_eps: Largest trusted change of a value; None fits plain squares.
        epochs: Passes over the rollout.
        minibatches: Requested parts a pass.
    """

    weight: Array
    max_grad_norm: Array
    clip_eps: Array | None
    epochs: int = struct.field(pytree_node=False)
    minibatches: int = struct.field(pytree_node=False)

    def applications(self, samples: int) -> int:
        """Return the optimiser applications that a rollout of so many samples makes."""
        return self.epochs * min(self.minibatches, samples)


class FitResult(NamedTuple):
    """A critic after its fit.

    Attributes:
        layers: Parameters.
        opt_state: Adam's state.
        loss: `[]` mean loss over the minibatches, the weight not included.
        gradient_norm: `[]` mean norm before clipping.
        skipped: `[]` share of minibatches whose loss or gradient was not finite; they changed nothing.
        applications: Optimiser applications made, skipped ones included.
    """

    layers: Any
    opt_state: Any
    loss: Array
    gradient_norm: Array
    skipped: Array
    applications: int


class _Fitting(NamedTuple):
    flat: Array
    opt_state: Any


def fit_critic(
    critic: Critic,
    layers: Any,  # noqa: ANN401 (Flax's own tree)
    opt_state: Any,  # noqa: ANN401
    samples: CriticSamples,
    key: Array,
    fit: ValueFit,
    rates: Array,
) -> FitResult:
    """Fit a critic to a rollout.

    Args:
        critic: The module.
        layers: Its parameters.
        opt_state: Adam's state over the flat vector of them.
        samples: `[N, ...]`.
        key: The random key of the shuffles.
        fit: How.
        rates: `[applications]` learning rate of each application, or `[]` for one of all.
    """
    packing = Packing.of(samples)
    packed = packing.pack(samples)
    indices, padding = minibatch_indices(key, packed.shape[0], fit.epochs, fit.minibatches)
    flat, unravel = ravel_parameters(layers)
    rates = jnp.broadcast_to(rates, indices.shape[:1])

    def apply_minibatch(fitting: _Fitting, row: tuple[Array, Array | None, Array]) -> tuple[_Fitting, Any]:
        minibatch: CriticSamples = packing.fetch(packed, row[0])
        weights = _weights(minibatch.valid, row[1])
        value_and_grad = jax.value_and_grad(
            lambda flat: _loss(critic, unravel(flat), minibatch, weights, fit)
        )
        return _step(fitting, *value_and_grad(fitting.flat), row[2], fit)

    end, (losses, norms, skipped) = lax.scan(
        apply_minibatch, _Fitting(flat, opt_state), (indices, padding, rates)
    )
    means = losses.mean(), norms.mean(), skipped.mean()
    return FitResult(unravel(end.flat), end.opt_state, *means, indices.shape[0])


def flat_samples(records: CriticSamples, rows: np.ndarray | None) -> CriticSamples:
    """Lay records `[T, B, ...]` out as samples `[N, ...]`, zeros where no sample stands.

    Args:
        records: A rollout.
        rows: Which of the `T * B` rows were made at all; None for all of them.
    """
    samples = records.returns.size
    flat: CriticSamples = jax.tree.map(lambda leaf: leaf.reshape(samples, *leaf.shape[2:]), records)
    if rows is not None:
        flat = jax.tree.map(lambda leaf: leaf[rows], flat)
    if flat.valid is None:
        return flat
    valid = flat.valid
    # A weight of 0 keeps NaN out of a loss, not out of its gradient.
    return CriticSamples(
        features=jnp.where(valid[:, None], flat.features, 0.0),
        returns=jnp.where(valid, flat.returns, 0.0),
        values=jnp.where(valid, flat.values, 0.0),
        valid=valid,
    )


def _loss(
    critic: Critic,
    layers: Any,  # noqa: ANN401
    samples: CriticSamples,
    weights: Array | None,
    fit: ValueFit,
) -> Array:
    values = apply_critic(critic, layers, samples.features, learning=True)
    if fit.clip_eps is None:
        losses = 0.5 * (values - samples.returns) ** 2
    else:
        losses = clipped_value_loss(values, samples.values, samples.returns, fit.clip_eps)
    if weights is None:
        return fit.weight * losses.mean()
    return fit.weight * jnp.where(weights > 0, losses, 0.0).sum() / jnp.maximum(weights.sum(), 1.0)


def _step(
    fitting: _Fitting, loss: Array, gradient: Array, rate: Array, fit: ValueFit
) -> tuple[_Fitting, tuple[Array, Array, Array]]:
    norm = jnp.sqrt(jnp.sum(gradient**2))
    sound = jnp.isfinite(norm) & jnp.isfinite(loss)
    clipped = gradient * jnp.minimum(1.0, fit.max_grad_norm / jnp.maximum(norm, 1e-12))
    direction, opt_state = step_adam(clipped, fitting.opt_state, sound)
    kept = _Fitting(jnp.where(sound, fitting.flat - rate * direction, fitting.flat), opt_state)
    unweighted = loss / jnp.where(fit.weight > 0, fit.weight, 1.0)
    return kept, (unweighted, norm, (~sound).astype(jnp.float32))


def _weights(valid: Array | None, padding: Array | None) -> Array | None:
    if valid is None:
        return padding
    weights = valid.astype(jnp.float32)
    return weights if padding is None else weights * padding
