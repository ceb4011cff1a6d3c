"""Wrappers around functional environments."""

from dressage.envs.wrappers.base import Wrapped, Wrapper, spaces_of
from dressage.envs.wrappers.episodes import AutoReset, EpisodeState, EpisodeStatistics, TimeLimit
from dressage.envs.wrappers.vector import VectorEnv

__all__ = [
    "AutoReset",
    "EpisodeState",
    "EpisodeStatistics",
    "TimeLimit",
    "VectorEnv",
    "Wrapped",
    "Wrapper",
    "spaces_of",
]
