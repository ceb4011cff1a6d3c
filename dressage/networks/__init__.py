"""Flax linen networks: actors, critics and the two together."""

from dressage.networks.actor_critic import (
    Actor,
    ActorCritic,
    Critic,
    PolicyOutputs,
    apply_actor,
    apply_both,
    apply_critic,
    apply_policy,
    apply_value,
)
from dressage.networks.mlp import ACTIVATIONS, KERNEL_INITS, MLP

__all__ = [
    "ACTIVATIONS",
    "KERNEL_INITS",
    "MLP",
    "Actor",
    "ActorCritic",
    "Critic",
    "PolicyOutputs",
    "apply_actor",
    "apply_both",
    "apply_critic",
    "apply_policy",
    "apply_value",
]
