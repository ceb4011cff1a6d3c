"""One interface to step copies of host environments: in this process, or in worker processes."""

from dressage.workers.group import StepperGroup, WorkerGroup
from dressage.workers.layout import (
    ACTION_MASK,
    ActionLayout,
    ActionPart,
    AgentGroup,
    ObservationLayout,
    ObservationPart,
    ParallelLayout,
    parallel_layout,
    without_mask,
)
from dressage.workers.making import make_workers
from dressage.workers.records import GroupObservation, GroupStep, HostObservation, HostParallelStep
from dressage.workers.single_agent import SingleAgentParallelEnv

__all__ = [
    "ACTION_MASK",
    "ActionLayout",
    "ActionPart",
    "AgentGroup",
    "GroupObservation",
    "GroupStep",
    "HostObservation",
    "HostParallelStep",
    "ObservationLayout",
    "ObservationPart",
    "ParallelLayout",
    "SingleAgentParallelEnv",
    "StepperGroup",
    "WorkerGroup",
    "make_workers",
    "parallel_layout",
    "without_mask",
]
