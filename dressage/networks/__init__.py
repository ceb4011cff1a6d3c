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
from dressage.networks.recurrent import (
    Memory,
    RecurrentActorCritic,
    recurrent_both,
    recurrent_policy,
    recurrent_value,
)

__all__ = [
    "ACTIVATIONS",
    "KERNEL_INITS",
    "MLP",
    "Actor",
    "ActorCritic",
    "Critic",
    "Memory",
    "PolicyOutputs",
    "RecurrentActorCritic",
    "apply_actor",
    "apply_both",
    "apply_critic",
    "apply_policy",
    "apply_value",
    "recurrent_both",
    "recurrent_policy",
    "recurrent_value",
]
