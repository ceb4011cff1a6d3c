"""Environments that come with dressage, one file each, and the exact optima of those that are finite."""

from dressage.envs.cmdp import CMDPSolution, FiniteCMDP, solve_cmdp

__all__ = ["CMDPSolution", "FiniteCMDP", "solve_cmdp"]
