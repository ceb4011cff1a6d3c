"""One way to apply the networks that learners train, with memory and without.

A network without memory sees observations; a recurrent one sees them together with what it remembers from
before them. Everything else in the learning code is the same for both.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import jax.numpy as jnp
from jax import Array

from dressage.networks import (
    ActorCritic,
    Memory,
    PolicyOutputs,
    RecurrentActorCritic,
    apply_both,
    apply_policy,
    apply_value,
    recurrent_both,
    recurrent_policy,
    recurrent_value,
)

Network: TypeAlias = ActorCritic | RecurrentActorCritic
Inputs: TypeAlias = Any
"""What a critic takes: features `[..., obs_dim]`, or the pair of them and a memory."""


def init_network(network: Network, key: Array, obs_dim: int) -> Any:  # noqa: ANN401 (Flax's own tree)
    """Draw a network's parameters."""
    if isinstance(network, RecurrentActorCritic):
        one_step = jnp.zeros((1, 1, obs_dim)), network.start((1,)), jnp.zeros((1, 1), bool)
        return network.init(key, *one_step)
    return network.init(key, jnp.zeros((1, obs_dim)))


def start_memory(network: Network, batch: tuple[int, ...]) -> Memory | None:
    """Return the memory at an episode's start, `[*batch, units]` each; None for networks without."""
    return network.start(batch) if isinstance(network, RecurrentActorCritic) else None


def step_policy(
    network: Network,
    params: Any,  # noqa: ANN401
    features: Array,
    memory: Memory | None,
) -> tuple[Memory | None, PolicyOutputs]:
    """Act on features `[..., obs_dim]`; returns the memory after them and the actor's outputs."""
    if isinstance(network, RecurrentActorCritic):
        assert memory is not None, "drivers start a recurrent network's memory"
        return recurrent_policy(network, params, features, memory)
    return None, apply_policy(network, params, features)


def critic_of(network: Network, params: Any) -> Callable[[Inputs], Array]:  # noqa: ANN401
    """Return the critic as a function of its inputs, for whole rollouts."""
    if isinstance(network, RecurrentActorCritic):
        return lambda inputs: recurrent_value(network, params, *inputs)
    return partial(apply_value, network, params)


def critic_inputs(features: Array, memory: Memory | None) -> Inputs:
    """Join features and the memory before them to what a critic takes."""
    return features if memory is None else (features, memory)


def final_inputs(
    network: Network,
    params: Any,  # noqa: ANN401
    features: Array,
    memory: Memory | None,
    final_features: Array,
) -> Inputs:
    """Return what a critic takes to value the observations that steps led to: memory has moved on by one."""
    after, _ = (None, None) if memory is None else step_policy(network, params, features, memory)
    return critic_inputs(final_features, after)


def evaluate_batch(
    network: Network,
    params: Any,  # noqa: ANN401
    features: Array,
    memory: Memory | None,
    restarts: Array | None,
) -> tuple[PolicyOutputs, Array]:
    """Apply actor and critic to a minibatch, to learn.

    Args:
        network: The network.
        params: Its parameters.
        features: `[N, obs_dim]` samples, or `[S, L, obs_dim]` sequences of a recurrent network.
        memory: What it remembers before each sequence, or None.
        restarts: `[S, L]` bool, True where memory starts anew, or None.

    Returns:
        Outputs and values, one row a sample: `[N, ...]` or `[S * L, ...]`.
    """
    if not isinstance(network, RecurrentActorCritic):
        return apply_both(network, params, features)
    assert memory is not None and restarts is not None, "batches of a recurrent network carry both"
    (outputs, log_std), values = recurrent_both(network, params, features, memory, restarts)
    flat_std = None if log_std is None else log_std.reshape(-1, log_std.shape[-1])
    return (outputs.reshape(-1, outputs.shape[-1]), flat_std), values.ravel()
