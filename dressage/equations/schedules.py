"""Learning-rate schedules, and the exact number of optimiser steps that they run over."""

from typing import Any

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from dressage.config import whole_number
from dressage.equations.precision import as_float


def linear_decay(step: ArrayLike, total_steps: ArrayLike, initial: ArrayLike) -> Array:
    r"""Return the value of a straight line from `initial` to 0: $\max(0, 1 - k/N)$ times `initial`.

    Args:
        step: Optimiser steps already applied, >= 0 (the first step sees 0).
        total_steps: Optimiser steps of the whole run, > 0; `num_optimizer_steps_for_timesteps` counts them.
        initial: Value at step 0.

    Returns:
        The value for this step; positive before the end, 0 from `total_steps` on, never negative.
    """
    remaining = 1 - as_float(step) / as_float(total_steps)
    return as_float(initial) * jnp.maximum(remaining, 0.0)


def adapt_learning_rate(
    learning_rate: ArrayLike,
    kl: ArrayLike,
    target_kl: ArrayLike,
    factor: ArrayLike = 1.5,
    minimum: ArrayLike = 1e-5,
    maximum: ArrayLike = 1e-2,
) -> Array:
    """Move a learning rate so that the divergence of an update stays near its target.

    Divided by `factor` where `kl > 2 * target_kl`, multiplied where `0 < kl < target_kl / 2`, else unchanged:
    also at NaN and exactly 0, which say that nothing was measured. Ranks must average `kl` first and decide
    on the mean, or their rates drift apart.

    Args:
        learning_rate: The present rate, > 0.
        kl: Measured divergence, nats.
        target_kl: Wanted divergence, nats, > 0.
        factor: Step of the rate, > 1.
        minimum: Least rate that a division may reach.
        maximum: Greatest rate that a multiplication may reach.

    Returns:
        The next rate.

    Reference:
        Rudin et al. 2022, "Learning to Walk in Minutes Using Massively Parallel Deep Reinforcement Learning",
        and its code; after Schulman et al. 2017, section 4, where a penalty's coefficient moves instead.
    """
    learning_rate = as_float(learning_rate)
    slower = jnp.maximum(learning_rate / factor, minimum)
    faster = jnp.minimum(learning_rate * factor, maximum)
    kl, target_kl = as_float(kl), as_float(target_kl)
    raised = jnp.where((kl > 0) & (kl < target_kl / 2), faster, learning_rate)
    return jnp.where(kl > 2 * target_kl, slower, raised)


def num_optimizer_steps_for_timesteps(
    timesteps: int, rollout_length: int, learning_epochs: int, requested_mini_batches: int
) -> int:
    """Return the exact number of optimizer applications for a training run.

    A rollout of n samples is split into `min(requested_mini_batches, n)` minibatches whose sizes differ by at
    most one, so that no sample is dropped; what is left after the whole rollouts makes a shorter last one.

    Args:
        timesteps: Samples of the whole run, >= 0, counted as `rollout_length` counts them.
        rollout_length: Samples of one rollout (steps times environment copies), >= 1.
        learning_epochs: Passes over each rollout, >= 1.
        requested_mini_batches: Minibatches per pass, >= 1.

    Raises:
        ValueError: If `timesteps` is negative, another argument is below 1, or one is no whole number; the
            text names it and its value.
    """
    timesteps = _at_least(0, "timesteps", timesteps)
    rollout_length = _at_least(1, "rollout_length", rollout_length)
    learning_epochs = _at_least(1, "learning_epochs", learning_epochs)
    requested_mini_batches = _at_least(1, "requested_mini_batches", requested_mini_batches)
    whole_rollouts, remainder = divmod(timesteps, rollout_length)
    minibatches = whole_rollouts * min(requested_mini_batches, rollout_length)
    return learning_epochs * (minibatches + min(requested_mini_batches, remainder))


def _at_least(minimum: int, name: str, value: Any) -> int:  # noqa: ANN401 (checks whatever was passed)
    number = whole_number(value)
    if number is None or number < minimum:
        raise ValueError(f"{name} must be a whole number >= {minimum}, got {value!r}.")
    return number
