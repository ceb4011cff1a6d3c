"""Actors, critics and the pair of them, with parameters apart (no shared trunk)."""

from typing import TypeAlias, cast

import jax.numpy as jnp
from flax import linen as nn
from flax.typing import Collection, VariableDict
from jax import Array

from dressage.kernels import Tower
from dressage.networks.mlp import Affine, act_tower, grow_tower, learn_towers, plan_layers

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

    def setup(self) -> None:
        """Declare the layers."""
        sizes = (*self.hidden_sizes, self.output_size + self._learned_spread)
        self.names = _declare(self, sizes, self.kernel_init, POLICY_GAIN)
        if self.continuous_dim and self.state_independent_std:
            self.log_std = self.param("log_std", nn.initializers.zeros_init(), (self.continuous_dim,))

    def __call__(self, observations: Array) -> PolicyOutputs:
        """Map observations `[..., obs_dim]` to outputs and log standard deviations, to act.

        Returns:
            Outputs `[..., output_size]`, and log standard deviations `[..., continuous_dim]`, or None without
            continuous outputs.
        """
        return self.divide(act_tower(observations, self.tower(observations.shape[-1]), self.activation))

    def tower(self, obs_dim: int) -> Tower:
        """Return the layers' parameters."""
        return grow_tower((getattr(self, name) for name in self.names), obs_dim)

    def divide(self, outputs: Array) -> PolicyOutputs:
        """Take what the tower gave apart into outputs and log standard deviations; see `__call__`."""
        if self.continuous_dim == 0:
            return outputs, None
        if self._learned_spread:
            return outputs[..., : self.output_size], outputs[..., self.output_size :]
        return outputs, jnp.broadcast_to(self.log_std, (*outputs.shape[:-1], self.continuous_dim))

    @property
    def _learned_spread(self) -> int:
        return 0 if self.state_independent_std else self.continuous_dim


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

    def setup(self) -> None:
        """Declare the layers."""
        self.names = _declare(self, (*self.hidden_sizes, 1), self.kernel_init, 1.0)

    def __call__(self, observations: Array, *, learning: bool = False) -> Array:
        """Map observations to values.

        Args:
            observations: `[..., obs_dim]`.
            learning: Whether there are many samples, or a gradient of the parameters is taken; see
                `networks.mlp`.

        Returns:
            `[...]`.
        """
        tower = self.tower(observations.shape[-1])
        if learning:
            return learn_towers(observations, (tower,), (self.activation,))[0][..., 0]
        return act_tower(observations, tower, self.activation)[..., 0]

    def tower(self, obs_dim: int) -> Tower:
        """Return the layers' parameters."""
        return grow_tower((getattr(self, name) for name in self.names), obs_dim)


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
        towers = self.actor.tower(observations.shape[-1]), self.critic.tower(observations.shape[-1])
        activations = self.actor.activation, self.critic.activation
        outputs, values = learn_towers(observations, towers, activations)
        return self.actor.divide(outputs), values[..., 0]

    def policy(self, observations: Array) -> PolicyOutputs:
        """Apply the actor alone, to act."""
        return self.actor(observations)

    def value(self, observations: Array, *, learning: bool = False) -> Array:
        """Apply the critic alone; `learning` as for `Critic`."""
        return self.critic(observations, learning=learning)


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


def _declare(
    module: nn.Module, sizes: tuple[int, ...], kernel_init: str, output_gain: float
) -> tuple[str, ...]:
    """Give a module, in its `setup`, the layers of a tower; returns their names."""
    plans = plan_layers(sizes, kernel_init, output_gain)
    for name, plan in plans.items():
        setattr(module, name, Affine(*plan))
    return tuple(plans)


def apply_both(
    network: ActorCritic, params: VariableDict, observations: Array
) -> tuple[PolicyOutputs, Array]:
    """Apply `ActorCritic.__call__`; Flax's own `apply` does not say what it returns."""
    return cast("tuple[PolicyOutputs, Array]", network.apply(params, observations))


def apply_policy(network: ActorCritic, params: VariableDict, observations: Array) -> PolicyOutputs:
    """Apply `ActorCritic.policy` to observations `[..., obs_dim]`."""
    return cast("PolicyOutputs", network.apply(params, observations, method="policy"))


def apply_value(network: ActorCritic, params: VariableDict, observations: Array) -> Array:
    """Apply `ActorCritic.value` to the observations of rollouts, `[..., obs_dim]`; returns values `[...]`."""
    return cast("Array", network.apply(params, observations, learning=True, method="value"))


def apply_actor(actor: Actor, layers: Collection, observations: Array) -> PolicyOutputs:
    """Apply an actor that stands alone, given the parameters of its layers."""
    return cast("PolicyOutputs", actor.apply({"params": layers}, observations))


def apply_critic(critic: Critic, layers: Collection, observations: Array, *, learning: bool = False) -> Array:
    """Apply a critic that stands alone, given the parameters of its layers."""
    return cast("Array", critic.apply({"params": layers}, observations, learning=learning))
