"""Per-sample losses of proximal policy optimisation, and the divergence estimate that watches them."""

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from dressage.equations.precision import as_float, exp_excess

# exp(20) = 4.9e8. Beyond it a ratio says only "the policies have parted"; left alone, exp overflows float32
# at 89, and where a branch of the clipped objective goes unused 0 * inf makes the gradient NaN.
LOG_RATIO_LIMIT = 20.0


def clipped_surrogate(
    log_prob: ArrayLike, old_log_prob: ArrayLike, advantages: ArrayLike, clip_eps: ArrayLike
) -> Array:
    r"""Return the clipped policy objective of each sample, to be maximised.

    $$L_i = \min\big(\rho_i A_i,\ \mathrm{clip}(\rho_i, 1-\epsilon, 1+\epsilon)\,A_i\big),
      \qquad \rho_i = \exp(\log\pi(a_i) - \log\pi_{old}(a_i))$$

    Args:
        log_prob: `[...]`, nats, under the policy being learned.
        old_log_prob: `[...]`, nats, under the policy that acted.
        advantages: `[...]`.
        clip_eps: Half width of the trusted ratio interval, in (0, 1).

    Returns:
        The objective per sample, `[...]`; no mean, so that callers can weight samples.

    Reference:
        Schulman et al. 2017, "Proximal Policy Optimization", equation 7. Departure: the log-ratio is limited
        to +-`LOG_RATIO_LIMIT` (outside it the gradient of the ratio is 0).
    """
    advantages = as_float(advantages)
    ratio = jnp.exp(_log_ratio(log_prob, old_log_prob))
    # The minimum of the two products, the branch taken on the sign of A: one select fewer in the gradient and
    # no tie to split where the ratio is exactly 1.
    bounded = jnp.where(advantages >= 0, jnp.minimum(ratio, 1 + clip_eps), jnp.maximum(ratio, 1 - clip_eps))
    return bounded * advantages


def clipped_value_loss(
    values: ArrayLike, old_values: ArrayLike, targets: ArrayLike, clip_eps: ArrayLike
) -> Array:
    r"""Return the pessimistic half squared error of each value, to be minimised.

    $$L_i = \tfrac12 \max\big((v_i - R_i)^2,\;
      (v^{old}_i + \mathrm{clip}(v_i - v^{old}_i, -\epsilon, \epsilon) - R_i)^2\big)$$

    Args:
        values: `[...]`, of the critic being learned.
        old_values: `[...]`, of the critic that saw the rollout.
        targets: `[...]`, value targets.
        clip_eps: Largest trusted change of a value, > 0, in units of the return; infinity gives plain half
            squares.

    Returns:
        The loss per sample, `[...]`, the factor one half included.

    Reference:
        Not in Schulman et al. 2017; from its reference implementation, see Engstrom et al. 2020,
        "Implementation Matters in Deep Policy Gradients", section 3, item 1.
    """
    values, old_values, targets = as_float(values), as_float(old_values), as_float(targets)
    clipped = old_values + jnp.clip(values - old_values, -jnp.asarray(clip_eps), clip_eps)
    return 0.5 * jnp.maximum((values - targets) ** 2, (clipped - targets) ** 2)


def approx_kl(log_prob: ArrayLike, old_log_prob: ArrayLike) -> Array:
    r"""Return each sample's estimate of KL(old || new), in nats; never negative, unbiased in the mean.

    $$k_i = (\rho_i - 1) - \log\rho_i$$

    Args:
        log_prob: `[...]`, nats, under the policy being learned.
        old_log_prob: `[...]`, nats, under the policy that acted.

    Returns:
        The estimate per sample, `[...]`; its mean over samples of the old policy estimates the divergence.

    Reference:
        Schulman 2020, "Approximating KL Divergence" (joschu.net/blog/kl-approx.html), estimator k3.
    """
    return exp_excess(_log_ratio(log_prob, old_log_prob))


def _log_ratio(log_prob: ArrayLike, old_log_prob: ArrayLike) -> Array:
    difference = as_float(log_prob) - as_float(old_log_prob)
    return jnp.clip(difference, -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
