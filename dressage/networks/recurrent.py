"""Recurrent actors and critics: a perceptron whose last hidden layer is a gated recurrent unit."""

from typing import TypeAlias, cast

import jax.numpy as jnp
from flax import linen as nn
from flax.typing import VariableDict
from jax import Array

from dressage.networks.actor_critic import POLICY_GAIN, PolicyOutputs
from dressage.networks.mlp import ACTIVATIONS, HIDDEN_GAINS, KERNEL_INITS
from dressage.networks.orthogonal import orthogonal

Memory: TypeAlias = tuple[Array, Array]
"""What actor and critic remember, `[..., units]` each."""


class RecurrentTower(nn.Module):
    """Dense layers, a gated recurrent unit in place of the last of them, and a linear head.

    Attributes:
        hidden_sizes: Units of each hidden layer, at least one; the last is the recurrent unit's.
        output_size: Units of the head.
        activation: A name in `ACTIVATIONS`, for the dense layers.
        kernel_init: A name in `KERNEL_INITS`, for dense layers and head.
        output_gain: Gain of the head's initialisation.

    Reference:
        Cho et al. 2014, "Learning Phrase Representations using RNN Encoder-Decoder", in the form of
        `flax.linen.GRUCell`.
    """

    hidden_sizes: tuple[int, ...]
    output_size: int
    activation: str
    kernel_init: str
    output_gain: float

    def setup(self) -> None:
        """Declare the layers."""
        make_init = KERNEL_INITS[self.kernel_init]
        hidden = make_init(HIDDEN_GAINS.get(self.kernel_init, 1.0))
        self.layers = [
            nn.Dense(size, kernel_init=hidden, name=f"Dense_{i}")
            for i, size in enumerate(self.hidden_sizes[:-1])
        ]
        self.cell = nn.GRUCell(self.hidden_sizes[-1], recurrent_kernel_init=orthogonal(1.0))
        self.head = nn.Dense(self.output_size, kernel_init=make_init(self.output_gain))

    def __call__(self, memory: Array, observations: Array) -> tuple[Array, Array]:
        """Take one step in.

        Args:
            memory: `[..., units]` before the step.
            observations: `[..., obs_dim]`.

        Returns:
            The memory after it, and the head's outputs `[..., output_size]`.
        """
        memory, hidden = self.cell(memory, self.embed(observations))
        return memory, self.head(hidden)

    def embed(self, observations: Array) -> Array:
        """Apply the dense layers."""
        for layer in self.layers:
            observations = ACTIVATIONS[self.activation](layer(observations))
        return observations

    def unroll(self, memory: Array, observations: Array, restarts: Array) -> Array:
        """Take whole sequences in.

        Args:
            memory: `[S, units]` before the first step of each sequence.
            observations: `[S, L, obs_dim]`.
            restarts: `[S, L]` bool, True where a step is the first of an episode: memory is zero there.

        Returns:
            The head's outputs `[S, L, output_size]`.
        """

        def step(cell: nn.GRUCell, memory: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
            memory = jnp.where(row[1][:, None], 0.0, memory)
            return cast("tuple[Array, Array]", cell(memory, row[0]))

        scan = nn.scan(step, variable_broadcast="params", split_rngs={"params": False}, in_axes=1, out_axes=1)
        _, hidden = scan(self.cell, memory, (self.embed(observations), restarts))
        return self.head(hidden)


class RecurrentActorCritic(nn.Module):
    """A recurrent actor and a recurrent critic side by side, each with its own memory.

    Attributes:
        output_size: Logits of all discrete components plus means of the continuous ones.
        continuous_dim: How many of the outputs are means; their log standard deviation is a free parameter.
        hidden_sizes: Units of each hidden layer; the last is the recurrent unit's.
        activation: A name in `ACTIVATIONS`.
        kernel_init: A name in `KERNEL_INITS`.
    """

    output_size: int
    continuous_dim: int = 0
    hidden_sizes: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    kernel_init: str = "orthogonal"

    def setup(self) -> None:
        """Declare the towers."""
        sizes, activation, kernel_init = self.hidden_sizes, self.activation, self.kernel_init
        self.actor = RecurrentTower(sizes, self.output_size, activation, kernel_init, POLICY_GAIN)
        self.critic = RecurrentTower(sizes, 1, activation, kernel_init, 1.0)
        if self.continuous_dim:
            self.log_std = self.param("log_std", nn.initializers.zeros_init(), (self.continuous_dim,))

    def __call__(self, observations: Array, memory: Memory, restarts: Array) -> tuple[PolicyOutputs, Array]:
        """Return the actor's outputs and the critic's values for sequences, to learn.

        Args:
            observations: `[S, L, obs_dim]`.
            memory: `[S, units]` each, before the first step of each sequence.
            restarts: `[S, L]` bool, True where memory starts anew.
        """
        outputs = self.actor.unroll(memory[0], observations, restarts)
        values = self.critic.unroll(memory[1], observations, restarts)
        return self._with_spread(outputs), values[..., 0]

    def policy(self, observations: Array, memory: Memory) -> tuple[Memory, PolicyOutputs]:
        """Take one step in, to act; both memories move on."""
        actor_memory, outputs = self.actor(memory[0], observations)
        critic_memory, _ = self.critic(memory[1], observations)
        return (actor_memory, critic_memory), self._with_spread(outputs)

    def value(self, observations: Array, memory: Memory) -> Array:
        """Return the critic's values `[...]` of observations, given what it remembers before them."""
        return self.critic(memory[1], observations)[1][..., 0]

    def start(self, batch: tuple[int, ...]) -> Memory:
        """Return the memory at an episode's start, `[*batch, units]` each."""
        zeros = jnp.zeros((*batch, self.hidden_sizes[-1]))
        return zeros, zeros

    def _with_spread(self, outputs: Array) -> PolicyOutputs:
        if not self.continuous_dim:
            return outputs, None
        return outputs, jnp.broadcast_to(self.log_std, (*outputs.shape[:-1], self.continuous_dim))


def recurrent_policy(
    network: RecurrentActorCritic, params: VariableDict, observations: Array, memory: Memory
) -> tuple[Memory, PolicyOutputs]:
    """Apply `RecurrentActorCritic.policy`."""
    applied = network.apply(params, observations, memory, method="policy")
    return cast("tuple[Memory, PolicyOutputs]", applied)


def recurrent_value(
    network: RecurrentActorCritic, params: VariableDict, observations: Array, memory: Memory
) -> Array:
    """Apply `RecurrentActorCritic.value`."""
    return cast("Array", network.apply(params, observations, memory, method="value"))


def recurrent_both(
    network: RecurrentActorCritic, params: VariableDict, observations: Array, memory: Memory, restarts: Array
) -> tuple[PolicyOutputs, Array]:
    """Apply `RecurrentActorCritic.__call__` to sequences."""
    applied = network.apply(params, observations, memory, restarts)
    return cast("tuple[PolicyOutputs, Array]", applied)
