"""Wrappers around functional environments, and the vector of them that learners step."""

from dressage.envs.wrappers.actions import ActionDelay, ClipAction, SquashAction
from dressage.envs.wrappers.base import Wrapped, Wrapper, spaces_of
from dressage.envs.wrappers.cost import AddCost
from dressage.envs.wrappers.episodes import AutoReset, EpisodeState, EpisodeStatistics, TimeLimit
from dressage.envs.wrappers.multi_agent import MultiAgentVectorEnv, Tally
from dressage.envs.wrappers.multi_agent_base import MultiAgentWrapper, OneAgent, as_multi_agent
from dressage.envs.wrappers.normalization import NormalizedState, NormalizeObservations, NormalizeRewards
from dressage.envs.wrappers.observations import ObservationHistory
from dressage.envs.wrappers.randomization import RandomizeParameters, UniformParameters
from dressage.envs.wrappers.vector import Vector, VectorEnv

__all__ = [
    "ActionDelay",
    "AddCost",
    "AutoReset",
    "ClipAction",
    "EpisodeState",
    "EpisodeStatistics",
    "MultiAgentVectorEnv",
    "MultiAgentWrapper",
    "NormalizeObservations",
    "NormalizeRewards",
    "NormalizedState",
    "ObservationHistory",
    "OneAgent",
    "RandomizeParameters",
    "SquashAction",
    "Tally",
    "TimeLimit",
    "UniformParameters",
    "Vector",
    "VectorEnv",
    "Wrapped",
    "Wrapper",
    "as_multi_agent",
    "spaces_of",
]
