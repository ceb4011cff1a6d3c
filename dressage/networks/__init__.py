"""Flax linen networks: actors, critics and the two together."""

from dressage.networks.actor_critic import Actor, ActorCritic, Critic
from dressage.networks.mlp import ACTIVATIONS, KERNEL_INITS, MLP

__all__ = ["ACTIVATIONS", "KERNEL_INITS", "MLP", "Actor", "ActorCritic", "Critic"]
