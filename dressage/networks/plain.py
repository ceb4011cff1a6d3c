"""Networks that say the sizes of their own inputs: an actor of choices and a value network.

Their parameters are named and shaped as those of `Actor` and `Critic`, so that what was trained as one can be
used as the other.
"""

from dataclasses import KW_ONLY

from flax import linen as nn
from jax import Array

from dressage.networks.actor_critic import POLICY_GAIN
from dressage.networks.mlp import perceptron


class CategoricalActor(nn.Module):
    """Logits of discrete choices.

    Attributes:
        obs_dim: Length of an observation.
        action_dim: Logits: the categories of all components.
        hidden_sizes: Units of each hidden layer.
        activation: A name in `ACTIVATIONS`.
    """

    obs_dim: int
    action_dim: int
    _: KW_ONLY
    hidden_sizes: tuple[int, ...]
    activation: str

    @nn.compact
    def __call__(self, observations: Array) -> Array:
        """Map observations `[..., obs_dim]` to logits `[..., action_dim]`.

        Raises:
            ValueError: If the observations have another length.
        """
        _check_length(observations, self.obs_dim)
        sizes = (*self.hidden_sizes, self.action_dim)
        return perceptron(observations, sizes, self.activation, "orthogonal", output_gain=POLICY_GAIN)


class ValueNetwork(nn.Module):
    """One number for an observation: what an episode will still bring, or cost.

    Attributes:
        obs_dim: Length of an observation.
        hidden_sizes: Units of each hidden layer.
        activation: A name in `ACTIVATIONS`.
    """

    obs_dim: int
    _: KW_ONLY
    hidden_sizes: tuple[int, ...]
    activation: str

    @nn.compact
    def __call__(self, observations: Array) -> Array:
        """Map observations `[..., obs_dim]` to values `[...]`.

        Raises:
            ValueError: If the observations have another length.
        """
        _check_length(observations, self.obs_dim)
        sizes = (*self.hidden_sizes, 1)
        return perceptron(observations, sizes, self.activation, "orthogonal", output_gain=1.0)[..., 0]


def _check_length(observations: Array, obs_dim: int) -> None:
    if observations.shape[-1] != obs_dim:
        raise ValueError(
            f"This network takes observations of length {obs_dim}, got shape {observations.shape}."
        )
