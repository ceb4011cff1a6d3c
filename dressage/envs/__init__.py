"""Environments: the functional interface, spaces, wrappers, the shipped suite and adapters to others."""

from dressage.envs import spaces, wrappers
from dressage.envs.functional import BaseEnv, Environment, Step
from dressage.envs.wrappers import VectorEnv

__all__ = ["BaseEnv", "Environment", "Step", "VectorEnv", "spaces", "wrappers"]
