"""Shields: what keeps a policy from acting unsafely while it learns and afterwards."""

from dressage.shield.augmented import ShieldedAgent, Shields
from dressage.shield.barrier import BarrierShield, Constraint, ControlBarrier, SampledBarrier
from dressage.shield.decision import Decision, Shield
from dressage.shield.functional import ShieldedEnv, shielded
from dressage.shield.mask import MaskShield
from dressage.shield.parallel import ShieldedParallelEnv
from dressage.shield.probabilistic import ProbabilisticShield, least_violation
from dressage.shield.projection import Projection, project

__all__ = [
    "BarrierShield",
    "Constraint",
    "ControlBarrier",
    "Decision",
    "MaskShield",
    "ProbabilisticShield",
    "Projection",
    "SampledBarrier",
    "Shield",
    "ShieldedAgent",
    "ShieldedEnv",
    "ShieldedParallelEnv",
    "Shields",
    "least_violation",
    "project",
    "shielded",
]
