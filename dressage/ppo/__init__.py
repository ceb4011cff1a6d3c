"""Proximal policy optimisation of one agent, the whole of it one compiled program."""

from dressage.envs.wrappers import SquashAction as SquashActionWrapper
from dressage.learning.compilation import compiler_options
from dressage.learning.faults import fault_field
from dressage.learning.policy_head import SquashState
from dressage.ppo.config import OPTIONS, Config
from dressage.ppo.policy import NormalizeVec, Policy
from dressage.ppo.records import Base, Diagnostics, Transition
from dressage.ppo.result import GraphState, PPOResult, RunnerState
from dressage.ppo.train import train
from dressage.ppo.trainer import Trainer, make_trainer

__all__ = [
    "OPTIONS",
    "Base",
    "Config",
    "Diagnostics",
    "GraphState",
    "NormalizeVec",
    "PPOResult",
    "Policy",
    "RunnerState",
    "SquashActionWrapper",
    "SquashState",
    "Trainer",
    "Transition",
    "compiler_options",
    "fault_field",
    "make_trainer",
    "train",
]
