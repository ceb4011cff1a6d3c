"""One trust-region step of a policy: surrogate gradients, Hessian products and the line search.

Everything is written for one agent over samples `[N, ...]` and is compiled with the rest of its update.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array, lax

from dressage.equations.surrogate import LOG_RATIO_LIMIT
from dressage.equations.trust_region import ConstrainedStep, StepCase, cpo_step
from dressage.learning.flat_parameters import ravel_parameters
from dressage.learning.policy_head import Distribution, PolicyHead
from dressage.networks import Actor, PolicyOutputs, apply_actor


class TrustRegion(struct.PyTreeNode):
    """How far a policy may move, and how its step is found.

    Attributes:
        delta: Largest mean divergence of an update, nats, > 0.
        damping: Added to the diagonal of the Hessian, >= 0.
        decay: Factor by which the line search shortens a step that was refused, in (0, 1).
        iterations: Conjugate-gradient steps of each solve.
        attempts: Steps that the line search tries.
        fisher_samples: Samples that products with the Hessian use; None for all of a rollout.
    """

    delta: Array
    damping: Array
    decay: Array
    iterations: int = struct.field(pytree_node=False, default=10)
    attempts: int = struct.field(pytree_node=False, default=15)
    fisher_samples: int | None = struct.field(pytree_node=False, default=None)


class PolicySamples(struct.PyTreeNode):
    """What a policy is improved on.

    Attributes:
        features: `[N, obs_dim]`, normalised.
        action_mask: `[N, outputs]` bool, the one that acted; None without masks.
        actions: The policy's actions, `[N, ...]`.
        advantages: `[N]` of the reward.
        cost_advantages: `[N]`, centred, in units of cost.
        weights: `[N]`, summing to 1, 0 where no sample stands.
    """

    features: Array
    action_mask: Array | None
    actions: Any
    advantages: Array
    cost_advantages: Array
    weights: Array


class Trial(NamedTuple):
    """A candidate of the line search, and what it would do by the rollout's own samples.

    Attributes:
        attempts: `[]` int32 candidates tried, this one included.
        accepted: `[]` bool.
        flat: `[P]` its parameters.
        fraction: `[]` share of the full step.
        kl: `[]` mean divergence from the policy that acted, nats.
        gain: `[]` growth of the reward surrogate.
        cost_change: `[]` growth of the cost surrogate, cost a step.
    """

    attempts: Array
    accepted: Array
    flat: Array
    fraction: Array
    kl: Array
    gain: Array
    cost_change: Array


class PolicyStep(NamedTuple):
    """The outcome of an update of the policy.

    Attributes:
        layers: The actor's parameters, those before where nothing was accepted.
        solved: The step as solved, before the line search.
        trial: The candidate that was accepted; zeros where none was.
        entropy: `[]` mean entropy of the policy that acted, nats.
    """

    layers: Any
    solved: ConstrainedStep
    trial: Trial
    entropy: Array


def improve_policy(
    head: PolicyHead,
    actor: Actor,
    layers: Any,  # noqa: ANN401 (Flax's own tree)
    samples: PolicySamples,
    excess: Array,
    region: TrustRegion,
    fisher_rows: Array | None = None,
) -> PolicyStep:
    """Take the best step that keeps cost limit and trust region, as far as the samples tell.

    Args:
        head: How outputs become distributions.
        actor: The policy network.
        layers: Its parameters.
        samples: The rollout.
        excess: `[]`, how far the cost is above its limit, in units of the cost surrogate: cost a step.
        region: The trust region.
        fisher_rows: `[M]` int32, samples that products with the Hessian use; None for all.
    """
    flat, unravel = ravel_parameters(layers)

    def policy(flat: Array) -> tuple[Array, PolicyOutputs]:
        outputs = apply_actor(actor, unravel(flat), samples.features)
        return head.distribution(outputs, samples.action_mask).log_prob(samples.actions), outputs

    log_probs, pull, outputs = jax.vjp(policy, flat, has_aux=True)
    (gradient,) = pull(samples.weights * samples.advantages)
    (cost_gradient,) = pull(samples.weights * samples.cost_advantages)
    product = divergence_product(head, actor, flat, unravel, _rows_of(samples, fisher_rows))
    solved = cpo_step(
        gradient,
        cost_gradient,
        product,
        excess,
        region.delta,
        iterations=region.iterations,
        damping=region.damping,
    )
    old = head.distribution(outputs, samples.action_mask)
    assess = partial(_assess, policy, head, samples, old, log_probs)
    trial = search(assess, flat, solved, excess, region)
    entropy = _mean(old.entropy(), samples.weights)
    return PolicyStep(unravel(trial.flat), solved, trial, entropy)


def divergence_product(
    head: PolicyHead, actor: Actor, flat: Array, unravel: Callable[[Array], Any], samples: PolicySamples
) -> Callable[[Array], Array]:
    r"""Return the product with the Hessian of mean `KL(old || new)` in the new parameters, at the old ones.

    There the divergence's gradient vanishes, so the Hessian is exactly $J^T M J$, with $J$ the Jacobian of
    the network's outputs and $M$ the Hessian of the divergence in the outputs.

    Args:
        head: How outputs become distributions.
        actor: The policy network.
        flat: `[P]` its parameters.
        unravel: Gives the tree of them back.
        samples: What the mean is over.

    Returns:
        A function of `[P]`.
    """
    outputs, push = jax.linearize(lambda flat: apply_actor(actor, unravel(flat), samples.features), flat)
    pull = jax.linear_transpose(push, flat)
    old = head.distribution(outputs, samples.action_mask)

    def divergence(new: PolicyOutputs) -> Array:
        return _mean(old.kl(head.distribution(new, samples.action_mask)), samples.weights)  # type: ignore[arg-type]

    _, curve = jax.linearize(jax.grad(divergence), outputs)

    def product(direction: Array) -> Array:
        (image,) = pull(curve(push(direction)))
        return jnp.asarray(image)

    return product


def search(
    assess: Callable[[Array], tuple[Array, Array, Array]],
    flat: Array,
    solved: ConstrainedStep,
    excess: Array,
    region: TrustRegion,
) -> Trial:
    """Shorten a step until the real policy keeps what the step was solved for.

    A candidate is accepted where everything is finite, the divergence is within `delta`, and the cost is
    kept: below the limit the cost surrogate must stay there and the reward's must not fall; above it the
    cost surrogate must fall, whatever the reward does.

    Args:
        assess: Maps parameters `[P]` to divergence, reward gain and change of cost.
        flat: `[P]` the parameters before.
        solved: The full step.
        excess: `[]` as for `improve_policy`.
        region: The trust region.

    Returns:
        The first candidate accepted, or one with the old parameters, bit for bit, and zeros.
    """

    def attempt(trial: Trial) -> Trial:
        fraction = region.decay**trial.attempts
        candidate = flat + fraction * solved.step
        kl, gain, cost_change = assess(candidate)
        kept = jnp.where(excess <= 0, (excess + cost_change <= 0) & (gain >= 0), cost_change < 0)
        sound = jnp.isfinite(kl + gain + cost_change) & jnp.isfinite(candidate).all()
        accepted = sound & kept & (kl <= region.delta)
        return Trial(trial.attempts + 1, accepted, candidate, fraction, kl, gain, cost_change)

    nothing = jnp.zeros((), flat.dtype)
    untried = Trial(jnp.int32(0), jnp.bool_(False), flat, nothing, nothing, nothing, nothing)
    stands_still = solved.case == StepCase.STATIONARY
    last = lax.while_loop(
        lambda trial: ~trial.accepted & ~stands_still & (trial.attempts < region.attempts), attempt, untried
    )
    kept: Trial = jax.tree.map(partial(jnp.where, last.accepted), last, untried)
    return kept._replace(attempts=last.attempts)


def sample_weights(valid: Array | None, samples: int) -> Array:
    """Return weights `[N]` that sum to 1 over the samples; zeros where there is none."""
    if valid is None:
        return jnp.full(samples, 1.0 / samples)
    return valid / jnp.maximum(valid.sum(), 1).astype(jnp.float32)


def _assess(
    policy: Callable[[Array], tuple[Array, PolicyOutputs]],
    head: PolicyHead,
    samples: PolicySamples,
    old: Distribution,
    old_log_probs: Array,
    flat: Array,
) -> tuple[Array, Array, Array]:
    """Return the divergence of a candidate and what it changes of both surrogates."""
    log_probs, outputs = policy(flat)
    log_ratio = jnp.clip(log_probs - old_log_probs, -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    growth = jnp.expm1(log_ratio)  # The change of a mean ratio, without the cancellation of ratio - 1.
    kl = old.kl(head.distribution(outputs, samples.action_mask))  # type: ignore[arg-type]
    return (
        _mean(kl, samples.weights),
        _mean(growth * samples.advantages, samples.weights),
        _mean(growth * samples.cost_advantages, samples.weights),
    )


def _rows_of(samples: PolicySamples, rows: Array | None) -> PolicySamples:
    if rows is None:
        return samples
    some: PolicySamples = jax.tree.map(lambda leaf: leaf[rows], samples)
    weights: PolicySamples = some.replace(weights=some.weights / jnp.maximum(some.weights.sum(), 1e-12))
    return weights


def _mean(values: Array, weights: Array) -> Array:
    """Mean over samples; what stands where none is cannot matter."""
    return jnp.where(weights > 0, weights * values, 0.0).sum()
