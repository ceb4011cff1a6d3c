"""Policies for the rollout engine: the role protocol, and rsl_rl's algorithms behind it.

The protocol and its records import no framework; torch is imported by `rsl_rl_policy` and `torch_envs` alone.
"""

from dressage.policy.base_policy import (
    BasePolicy,
    EnvMeta,
    EnvRet,
    EvalConfig,
    Fragment,
    PolicyConfig,
    PolicyResponse,
    PolicyRole,
    RolloutEnv,
    TrainConfig,
    Weights,
)

__all__ = [
    "BasePolicy",
    "EnvMeta",
    "EnvRet",
    "EvalConfig",
    "Fragment",
    "PolicyConfig",
    "PolicyResponse",
    "PolicyRole",
    "RolloutEnv",
    "TrainConfig",
    "Weights",
]
