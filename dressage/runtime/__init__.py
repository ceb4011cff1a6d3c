"""The engine that trains a policy on fragments of workers: in one process, in several, or on Ray."""

from dressage.runtime.accounts import Counters
from dressage.runtime.checkpoints import RunCheckpoints, RunState
from dressage.runtime.config import OPTIONS, RuntimeConfig, runtime_config
from dressage.runtime.engine import Engine, RunReport
from dressage.runtime.records import RunSpec

__all__ = [
    "OPTIONS",
    "Counters",
    "Engine",
    "RunCheckpoints",
    "RunReport",
    "RunSpec",
    "RunState",
    "RuntimeConfig",
    "runtime_config",
]
