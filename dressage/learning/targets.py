"""Targets: from a rollout and the critic's values to advantages and returns."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from dressage.equations.returns import compute_gae, normalize_advantages
from dressage.equations.statistics import RunningMoments

REWARD_CLIP = 10.0


class Targets(NamedTuple):
    """What the losses of a rollout aim at, all `[T, B]`.

    Attributes:
        advantages: Normalised once over the rollout's valid samples.
        returns: What the critic is fitted to.
        raw_advantages: The advantages before their normalisation.
    """

    advantages: Array
    returns: Array
    raw_advantages: Array


def advantage_targets(
    rewards: Array,
    terminated: Array,
    episode_ends: Array,
    values: Array,
    next_values: Array,
    valid: Array | None,
    gamma: Array,
    gae_lambda: Array,
) -> Targets:
    """Estimate advantages and returns of a rollout by GAE; see `equations.returns.compute_gae`.

    A row that is no sample (`valid` False) ends the recursion and bootstraps nothing: what stands in it, an
    autoreset's value for instance, reaches neither its neighbours nor the mean of the advantages.
    """
    if valid is not None:
        terminated = terminated | ~valid
        episode_ends = episode_ends | ~valid
        # With reward and value 0 its advantage is 0, so the row before it takes nothing over either.
        rewards, values = jnp.where(valid, rewards, 0.0), jnp.where(valid, values, 0.0)
    advantages, returns = compute_gae(
        rewards, terminated, episode_ends, values, next_values, gamma, gae_lambda
    )
    return Targets(normalize_advantages(advantages, valid), returns, advantages)


def scale_rewards(
    rewards: Array,
    episode_ends: Array,
    valid: Array | None,
    moments: RunningMoments,
    running: Array,
    gamma: Array,
) -> tuple[Array, RunningMoments, Array]:
    """Divide rewards by the standard deviation of the discounted return, as VecNormalize does.

    The deviation includes this rollout, so that the first rollout is scaled too. Rewards are not centred:
    that would change which policy is best.

    Args:
        rewards: `[T, B]`.
        episode_ends: `[T, B]` bool; the running return restarts behind an end.
        valid: `[T, B]` bool or None.
        moments: Statistics of all discounted returns before.
        running: `[B]` each copy's discounted return so far.
        gamma: Discount a step.

    Returns:
        Scaled rewards `[T, B]`, clipped to ±10, the new statistics and the new running returns.
    """

    def accumulate(running: Array, row: tuple[Array, Array, Array | None]) -> tuple[Array, Array]:
        reward, ended, sample = row
        total = gamma * running + reward
        total = total if sample is None else jnp.where(sample, total, running)
        return jnp.where(ended, 0.0, total), total

    running, discounted = lax.scan(accumulate, running, (rewards, episode_ends, valid))
    moments = moments.update(discounted.ravel(), None if valid is None else valid.ravel())
    scaled = rewards * lax.rsqrt(moments.var + 1e-8)
    return jnp.clip(scaled, -REWARD_CLIP, REWARD_CLIP), moments, running
