"""Flax linen networks: actors, critics and the two together."""

from dressage.networks.actor_critic import (
    Actor,
    ActorCritic,
    ActorCriticWithCost,
    Critic,
    PolicyOutputs,
    apply_actor,
    apply_both,
    apply_critic,
    apply_policy,
    apply_value,
)
from dressage.networks.mlp import ACTIVATIONS, KERNEL_INITS, MLP
from dressage.networks.plain import CategoricalActor, ValueNetwork
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
    "ActorCriticWithCost",
    "CategoricalActor",
    "Critic",
    "Memory",
    "PolicyOutputs",
    "RecurrentActorCritic",
    "ValueNetwork",
    "apply_actor",
    "apply_both",
    "apply_critic",
    "apply_policy",
    "apply_value",
    "recurrent_both",
    "recurrent_policy",
    "recurrent_value",
]
