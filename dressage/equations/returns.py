"""Targets of policy and critic: generalised advantages, their normalisation, and V-trace for older data."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike

from dressage.equations.precision import as_float

# Below this fraction of the largest advantage a deviation is float32 rounding, not signal: the mean of 128
# equal numbers is wrong by up to 1.2e-7 of their size.
_ROUNDING = 1e-6


def compute_gae(
    rewards: ArrayLike,
    bootstrap_dones: ArrayLike,
    episode_ends: ArrayLike,
    values: ArrayLike,
    next_values: ArrayLike,
    gamma: ArrayLike,
    gae_lambda: ArrayLike,
) -> tuple[Array, Array]:
    r"""Estimate advantages and value targets of a rollout by GAE with two masks.

    $$\delta_t = r_t + \gamma\,[d_t = 0]\,v'_t - v_t, \qquad
      A_t = \delta_t + \gamma\lambda\,[e_t = 0]\,A_{t+1}, \qquad A_T = 0$$

    with $d$ = `bootstrap_dones`, $e$ = `episode_ends`, $v'$ = `next_values`. Masked terms are selected away,
    never multiplied by zero, so NaN or infinity behind a mask does no harm.

    Args:
        rewards: `[T, ...]`.
        bootstrap_dones: `[T, ...]`, bool or 0/1; 1 where nothing follows (true termination). Implies the
            corresponding `episode_ends`; see `check_episode_masks`.
        episode_ends: `[T, ...]`, bool or 0/1; 1 where an episode ended for any reason, a time limit included.
        values: `[T, ...]`, the critic at the observation acted on.
        next_values: `[T, ...]`, the critic at the observation that really followed: the final observation of
            an ended episode, never the first of the next one.
        gamma: Discount per step, in [0, 1].
        gae_lambda: Decay of the estimator, in [0, 1].

    Returns:
        Advantages and value targets (`advantages + values`), each `[T, ...]`.

    Raises:
        ValueError: If the five arrays differ in shape or have no time axis.

    Reference:
        Schulman et al. 2016, "High-Dimensional Continuous Control Using Generalized Advantage Estimation",
        equation 16. The two masks are the partial-episode bootstrapping of Pardo et al. 2018, "Time Limits
        in Reinforcement Learning".
    """
    rewards, values, next_values = as_float(rewards), as_float(values), as_float(next_values)
    bootstrap_dones, episode_ends = _as_mask(bootstrap_dones), _as_mask(episode_ends)
    _check_shapes(rewards, bootstrap_dones, episode_ends, values, next_values)
    deltas = rewards + gamma * jnp.where(bootstrap_dones, 0.0, next_values) - values
    decay = jnp.asarray(gamma * jnp.asarray(gae_lambda), deltas.dtype)

    def accumulate(following: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, episode_end = step
        advantage = delta + jnp.where(episode_end, 0.0, decay * following)
        return advantage, advantage

    _, advantages = jax.lax.scan(
        accumulate, jnp.zeros_like(deltas, shape=deltas.shape[1:]), (deltas, episode_ends), reverse=True
    )
    return advantages, advantages + values


def vtrace(
    rewards: ArrayLike,
    bootstrap_dones: ArrayLike,
    episode_ends: ArrayLike,
    values: ArrayLike,
    next_values: ArrayLike,
    ratios: ArrayLike,
    gamma: ArrayLike,
    trace_decay: ArrayLike = 1.0,
    clip_ratio: ArrayLike = 1.0,
    clip_trace: ArrayLike = 1.0,
) -> tuple[Array, Array]:
    r"""Estimate advantages and value targets of a rollout that older weights acted, by V-trace.

    $$\delta_t = \rho_t\,(r_t + \gamma\,[d_t = 0]\,v'_t - v_t), \qquad
      s_t = \delta_t + \gamma c_t\,[e_t = 0]\,s_{t+1}, \qquad s_T = 0$$

    with $\rho = \min(\bar\rho, \pi/\mu)$, $c = \lambda \min(\bar c, \pi/\mu)$, $d$ = `bootstrap_dones`,
    $e$ = `episode_ends`, $v'$ = `next_values`. The targets are $v_t + s_t$; the advantages are
    $\rho_t\,(r_t + \gamma\,[d_t = 0]\,g_t - v_t)$, where $g_t$ is the target of step $t + 1$ within an
    episode and $v'_t$ at its end and at the rollout's. So the discount is 0 where an episode terminates, and
    a time limit is bootstrapped. Masked terms are selected away, never multiplied by zero.

    Args:
        rewards: `[T, ...]`.
        bootstrap_dones: `[T, ...]`, bool or 0/1; 1 where nothing follows. Implies `episode_ends`.
        episode_ends: `[T, ...]`, bool or 0/1; 1 where an episode ended for any reason.
        values: `[T, ...]`, the current critic at the observation acted on.
        next_values: `[T, ...]`, the current critic at the observation that really followed.
        ratios: `[T, ...]`, probability of the action under the current policy over that under the one that
            acted, positive.
        gamma: Discount per step, in [0, 1].
        trace_decay: Decay of the traces, in [0, 1].
        clip_ratio: Greatest importance weight; it decides which policy's value the targets tend to.
        clip_trace: Greatest trace; it decides how fast, at most `clip_ratio`.

    Returns:
        Advantages and value targets, each `[T, ...]`. At ratio 1 and clips of at least 1 the targets are
        those of `compute_gae` with `gae_lambda = trace_decay`.

    Raises:
        ValueError: If the six arrays differ in shape or have no time axis.

    Reference:
        Espeholt et al. 2018, "IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner
        Architectures", equation 1, remark 2 and section 4.2. The two masks are our addition.
    """
    rewards, values, next_values = as_float(rewards), as_float(values), as_float(next_values)
    ratios = as_float(ratios)
    bootstrap_dones, episode_ends = _as_mask(bootstrap_dones), _as_mask(episode_ends)
    _check_shapes(rewards, bootstrap_dones, episode_ends, values, next_values, ratios)
    weights = jnp.minimum(jnp.asarray(clip_ratio, ratios.dtype), ratios)
    traces = jnp.asarray(gamma * jnp.asarray(trace_decay), ratios.dtype) * jnp.minimum(
        jnp.asarray(clip_trace, ratios.dtype), ratios
    )
    deltas = weights * (rewards + gamma * jnp.where(bootstrap_dones, 0.0, next_values) - values)

    def accumulate(following: Array, step: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        delta, trace, episode_end = step
        surplus = delta + jnp.where(episode_end, 0.0, trace * following)
        return surplus, surplus

    _, surpluses = jax.lax.scan(
        accumulate,
        jnp.zeros_like(deltas, shape=deltas.shape[1:]),
        (deltas, traces, episode_ends),
        reverse=True,
    )
    targets = values + surpluses
    later = jnp.concatenate([targets[1:], next_values[-1:]])
    ahead = jnp.where(bootstrap_dones, 0.0, jnp.where(episode_ends, next_values, later))
    return weights * (rewards + gamma * ahead - values), targets


def normalize_advantages(advantages: ArrayLike, valid: ArrayLike | None = None) -> Array:
    r"""Shift and scale advantages to zero mean and unit population deviation.

    $$\hat A_i = (A_i - \mu)/\sigma, \qquad \sigma^2 = \tfrac1n \sum_i (A_i - \mu)^2$$

    over the valid entries; zeros where $\sigma \le 10^{-6}\max(1, \max_i |A_i|)$, since such a deviation is
    rounding. One entry or constant input therefore gives zeros, and the gradient is finite everywhere.

    Args:
        advantages: Any shape; an empty array is returned as it is.
        valid: Bool or 0/1, broadcastable to `advantages`; entries that are not valid enter neither mean nor
            deviation and come back as 0, whatever they hold.

    Returns:
        The same shape, zero mean and unit deviation over the valid entries.

    Reference:
        Not in Schulman et al. 2017; from the implementations, see Engstrom et al. 2020, "Implementation
        Matters in Deep Policy Gradients". Dividing by n, not n - 1, is a choice.
    """
    advantages = as_float(advantages)
    if advantages.size == 0:
        return advantages
    centred, deviation = centre_advantages(advantages, valid)
    # The inner select keeps the quotient's gradient finite where nothing is divided.
    return jnp.where(deviation == 0, 0.0, centred / jnp.where(deviation == 0, 1.0, deviation))


def centre_advantages(advantages: ArrayLike, valid: ArrayLike | None = None) -> tuple[Array, Array]:
    r"""Shift advantages to zero mean over the valid entries, and say how far they spread.

    Args:
        advantages: Any shape with at least one entry.
        valid: As for `normalize_advantages`.

    Returns:
        The centred advantages, the same shape, 0 where not valid; and their population deviation, `[]`,
        exactly 0 where it is rounding (at most $10^{-6}\max(1, \max_i |A_i|)$).
    """
    advantages = as_float(advantages)
    counted = jnp.ones(advantages.shape, bool) if valid is None else _as_mask(valid)
    counted = jnp.broadcast_to(counted, advantages.shape)
    count = jnp.maximum(jnp.sum(counted), 1).astype(advantages.dtype)
    kept = jnp.where(counted, advantages, 0.0)
    centred = jnp.where(counted, kept - _sum(kept) / count, 0.0)
    variance = _sum(centred, jnp.square) / count
    floor = _ROUNDING * jnp.maximum(1.0, jnp.max(jnp.abs(kept)))
    is_flat = variance <= floor**2  # False for NaN, which so comes out as NaN.
    # The inner select keeps the square root away from 0, where its gradient is infinite.
    deviation = jnp.where(is_flat, 0.0, jnp.sqrt(jnp.where(is_flat, 1.0, variance)))
    return centred, deviation


def _sum(values: Array, function: Callable[[Array], Array] = jnp.asarray) -> Array:
    """Add up what a function makes of an array, one half after the other.

    The body of a loop is compiled by itself. A sum in the open is fused with whatever surrounds it, which
    decides where products and sums round together: the same advantages would then come out a last bit
    apart in two learners.
    """
    flat = values.ravel()
    halves = jnp.pad(flat, (0, flat.size % 2)).reshape(2, -1)

    def add(total: Array, half: Array) -> tuple[Array, None]:
        return total + jnp.sum(function(half)), None

    total, _ = lax.scan(add, jnp.zeros((), values.dtype), halves)
    return total


def check_episode_masks(bootstrap_dones: ArrayLike, episode_ends: ArrayLike) -> None:
    """Refuse, on the host, masks in which a termination does not end its episode.

    Args:
        bootstrap_dones: `[T, ...]`, concrete (not traced).
        episode_ends: `[T, ...]`, concrete (not traced).

    Raises:
        ValueError: If an entry of `bootstrap_dones` is set where `episode_ends` is not; the text names it.
    """
    wrong = np.argwhere((np.asarray(bootstrap_dones) != 0) & (np.asarray(episode_ends) == 0))
    if len(wrong):
        index = tuple(int(i) for i in wrong[0])
        raise ValueError(
            f"bootstrap_dones is set at index {index} where episode_ends is not; "
            "a step without a successor ends its episode."
        )


def _as_mask(flags: ArrayLike) -> Array:
    flags = jnp.asarray(flags)
    return flags if flags.dtype == jnp.bool_ else flags != 0


def _check_shapes(rewards: Array, *others: Array) -> None:
    if rewards.ndim == 0:
        raise ValueError(f"{_named(others)} needs arrays with a leading time axis, got a scalar reward.")
    names = ("bootstrap_dones", "episode_ends", "values", "next_values", "ratios")
    for name, array in zip(names, others, strict=False):
        if array.shape != rewards.shape:
            raise ValueError(
                f"{_named(others)} needs equal shapes: rewards {rewards.shape}, {name} {array.shape}."
            )


def _named(arrays: tuple[Array, ...]) -> str:
    """Say which equation arrays were given to: V-trace takes one more."""
    return "vtrace" if len(arrays) > 4 else "compute_gae"
