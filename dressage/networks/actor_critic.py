"""Actors, critics and the pair of them, with parameters apart (no shared trunk)."""

from typing import TypeAlias, cast

import jax.numpy as jnp
from flax import linen as nn
from flax.typing import Collection, VariableDict
from jax import Array

from dressage.networks.mlp import perceptron

POLICY_GAIN = (
    0.01  # Nearly equal choices at first: Andrychowicz et al. 2021, "What matters in on-policy RL", 3.2.
)

PolicyOutputs: TypeAlias = tuple[Array, Array | None]
"""Outputs `[..., output_size]`, and log standard deviations `[..., continuous_dim]` or None."""


class Actor(nn.Module):
    """A policy network: the outputs that a policy head turns into a distribution.

    Attributes:
        output_size: Logits of all discrete components plus means of the continuous ones.
        continuous_dim: How many of the outputs are means; each has a log standard deviation.
        state_independent_std: Whether `log_std` is a free parameter or a function of the observation.
        hidden_sizes: Units of each hidden layer.
        activation: A name in `ACTIVATIONS`.
        kernel_init: A name in `KERNEL_INITS`.
    """

    output_size: int
    continuous_dim: int = 0
    state_independent_std: bool = True
    hidden_sizes: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    kernel_init: str = "orthogonal"

    @nn.compact
    def __call__(self, observations: Array, *, columns: bool = False) -> PolicyOutputs:
        """Map observations `[..., obs_dim]` to outputs and log standard deviations.

        Args:
            observations: `[..., obs_dim]`.
            columns: Whether samples stand in columns inside; see `networks.mlp`.

        Returns:
            Outputs `[..., output_size]`, and log standard deviations `[..., continuous_dim]`, or None without
            continuous outputs.
        """
        learned_spread = 0 if self.state_independent_std else self.continuous_dim
        sizes = (*self.hidden_sizes, self.output_size + learned_spread)
        outputs = perceptron(
            observations, sizes, self.activation, self.kernel_init, output_gain=POLICY_GAIN, columns=columns
        )
        if self.continuous_dim == 0:
            return outputs, None
        if learned_spread:
            return outputs[..., : self.output_size], outputs[..., self.output_size :]
        log_std = self.param("log_std", nn.initializers.zeros_init(), (self.continuous_dim,))
        return outputs, jnp.broadcast_to(log_std, (*outputs.shape[:-1], self.continuous_dim))


class Critic(nn.Module):
    """A value network: one scalar for an observation.

    Attributes:
        hidden_sizes: Units of each hidden layer.
        activation: A name in `ACTIVATIONS`.
        kernel_init: A name in `KERNEL_INITS`.
    """

    hidden_sizes: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    kernel_init: str = "orthogonal"

    @nn.compact
    def __call__(self, observations: Array, *, columns: bool = False) -> Array:
        """Map observations `[..., obs_dim]` to values `[...]`; `columns` as for `Actor`."""
        sizes = (*self.hidden_sizes, 1)
        values = perceptron(
            observations, sizes, self.activation, self.kernel_init, output_gain=1.0, columns=columns
        )
        return values[..., 0]


class ActorCritic(nn.Module):
    """An actor and a critic side by side; each can be applied alone.

    Attributes:
        actor: The policy network.
        critic: The value network.
    """

    actor: Actor
    critic: Critic

    def __call__(self, observations: Array) -> tuple[PolicyOutputs, Array]:
        """Return the actor's outputs and the critic's values for observations `[..., obs_dim]`, to learn."""
        return self.actor(observations, columns=True), self.critic(observations, columns=True)

    def policy(self, observations: Array) -> PolicyOutputs:
        """Apply the actor alone, to act."""
        return self.actor(observations)

    def value(self, observations: Array) -> Array:
        """Apply the critic alone."""
        return self.critic(observations)


class ActorCriticWithCost(nn.Module):
    """An actor, a critic of the reward and a critic of the cost, side by side.

    Attributes:
        actor: The policy network.
        critic: The value network of the reward.
        cost_critic: The value network of the cost.
    """

    actor: Actor
    critic: Critic
    cost_critic: Critic

    def __call__(self, observations: Array) -> tuple[PolicyOutputs, Array, Array]:
        """Return the actor's outputs, reward values and cost values for observations `[..., obs_dim]`."""
        return self.actor(observations), self.critic(observations), self.cost_critic(observations)


def apply_both(
    network: ActorCritic, params: VariableDict, observations: Array
) -> tuple[PolicyOutputs, Array]:
    """Apply `ActorCritic.__call__`; Flax's own `apply` does not say what it returns."""
    return cast("tuple[PolicyOutputs, Array]", network.apply(params, observations))


def apply_policy(network: ActorCritic, params: VariableDict, observations: Array) -> PolicyOutputs:
    """Apply `ActorCritic.policy` to observations `[..., obs_dim]`."""
    return cast("PolicyOutputs", network.apply(params, observations, method="policy"))


def apply_value(network: ActorCritic, params: VariableDict, observations: Array) -> Array:
    """Apply `ActorCritic.value` to observations `[..., obs_dim]`; returns values `[...]`."""
    return cast("Array", network.apply(params, observations, method="value"))


def apply_actor(
    actor: Actor, layers: Collection, observations: Array, *, columns: bool = False
) -> PolicyOutputs:
    """Apply an actor that stands alone, given the parameters of its layers."""
    return cast("PolicyOutputs", actor.apply({"params": layers}, observations, columns=columns))


def apply_critic(critic: Critic, layers: Collection, observations: Array, *, columns: bool = False) -> Array:
    """Apply a critic that stands alone, given the parameters of its layers."""
    return cast("Array", critic.apply({"params": layers}, observations, columns=columns))
