"""How large the files of a network of usual size are, and how long a fresh process takes to write them."""

import json
import subprocess
import sys

import numpy as np
import pytest

from dressage.export import FORMATS, Card, Signal, export_policy
from dressage.ppo import NormalizeVec
from tests.export.shipped import Box
from tests.ppo.test_policy import policy_for

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

WIDE = Box(-np.inf, np.inf, (24,))
SCALING = NormalizeVec(np.full(24, 50, np.float32), np.full(24, 400, np.float32), np.float32(1000))
CARD = Card(
    task="quadruped",
    algorithm="ppo",
    observation=tuple(Signal(f"joint {index} angle", "rad", -3.1, 3.1) for index in range(24)),
    action=tuple(Signal(f"joint {index} torque", "N m", -40.0, 40.0) for index in range(6)),
)
PROGRAM = """
import json, sys, time
from dressage.export import FORMATS, export_policy
from dressage.ppo import Policy
policy, seconds = Policy.load(sys.argv[1]), {}
for name in FORMATS:
    begun = time.process_time()
    export_policy(policy, f"{sys.argv[1]}/exported.{name}")
    seconds[name] = time.process_time() - begun
print(json.dumps(seconds))
"""


@pytest.fixture(scope="module")
def usual():
    """A policy 24-64-64-6 with statistics and tanh into bounds."""
    return policy_for(Box(-1, 1, (6,)), observation_space=WIDE, scaling=SCALING, NUM_HIDDEN_UNITS=64)


@pytest.mark.parametrize("name", FORMATS)
def test_a_policy_of_24_64_64_6_stays_under_40_kilobytes_with_all_its_signals_named(usual, tmp_path, name):
    path = export_policy(usual, tmp_path / f"policy.{name}", card=CARD)
    assert path.stat().st_size < 40_000
    assert [file.name for file in tmp_path.iterdir()] == [f"policy.{name}"]


def test_a_process_of_its_own_writes_and_checks_each_format_in_two_seconds_of_computing(usual, tmp_path):
    usual.save(tmp_path)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    finished = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    seconds = json.loads(finished.stdout)
    assert set(seconds) == set(FORMATS)
    assert max(seconds.values()) < 2.0
