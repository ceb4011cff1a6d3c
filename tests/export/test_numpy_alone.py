"""The NumPy runner: on its own it needs NumPy and nothing else, and the package loads no framework."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dressage.export import numpy_policy
from tests.export.shipped import KINDS, shipped

ALONE = """
import sys
import numpy
before = set(sys.modules)
sys.path.insert(0, ".")
from numpy_policy import NumpyPolicy
inputs = dict(numpy.load("inputs.npz"))
outputs = NumpyPolicy("policy.safetensors").run(inputs)
numpy.savez("outputs.npz", **outputs)
foreign = {name.partition(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)
print(sorted(foreign))
"""
IMPORT_ONLY = """
import sys
import dressage.export
frameworks = ("jax", "flax", "torch", "onnx", "onnxruntime", "safetensors", "gymnasium", "scipy")
print(sorted(set(frameworks) & set(sys.modules)))
"""


def run_python(code, folder):
    command = [sys.executable, "-W", "error", "-c", code]
    finished = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()


@pytest.mark.parametrize("kind", KINDS)
def test_copied_out_of_the_package_the_runner_acts_the_same_without_any_other_import(tmp_path, kind):
    pytest.importorskip("onnx")
    made = shipped(kind)
    shutil.copy(numpy_policy.__file__, tmp_path)
    shutil.copy(made.files["safetensors"], tmp_path)
    np.savez(tmp_path / "inputs.npz", **made.trial.inputs)
    assert run_python(ALONE, tmp_path) == "['numpy_policy']"
    expected = made.runners["safetensors"].run(made.trial.inputs)
    with np.load(tmp_path / "outputs.npz") as outputs:
        for name in made.trial.live:
            np.testing.assert_array_equal(outputs[name], expected[name])


def test_importing_the_package_needs_numpy_alone():
    assert run_python(IMPORT_ONLY, Path(__file__).parents[2]) == "[]"
