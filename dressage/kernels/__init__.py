"""Kernels of dressage's own for XLA's CPU backend, compiled on the machine that they run on."""

from dressage.kernels.building import KERNELS_VARIABLE, Kernels, kernels
from dressage.kernels.calls import registered
from dressage.kernels.samples import gather, gathers, split, swift
from dressage.kernels.towers import Layer, Tower, apply_towers, takes

__all__ = [
    "KERNELS_VARIABLE",
    "Kernels",
    "Layer",
    "Tower",
    "apply_towers",
    "gather",
    "gathers",
    "kernels",
    "registered",
    "split",
    "swift",
    "takes",
]
