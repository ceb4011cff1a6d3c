"""A policy that leaves home: one file for onnxruntime, for NumPy alone or for JAX, that proves itself.

Importing this package needs NumPy only; what a format needs besides is imported when it is used.
"""

from dressage.export.card import Card, Score, Signal
from dressage.export.exporting import FORMATS, export_policies, export_policy
from dressage.export.loading import load_policies, load_policy
from dressage.export.numpy_policy import NumpyPolicy
from dressage.export.onnx_policy import OnnxPolicy
from dressage.export.stablehlo import StableHloPolicy
from dressage.export.verification import Verification, describe_file, verify_file, verify_policies

__all__ = [
    "FORMATS",
    "Card",
    "NumpyPolicy",
    "OnnxPolicy",
    "Score",
    "Signal",
    "StableHloPolicy",
    "Verification",
    "describe_file",
    "export_policies",
    "export_policy",
    "load_policies",
    "load_policy",
    "verify_file",
    "verify_policies",
]
