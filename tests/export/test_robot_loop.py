"""The documented loop of a robot: NumPy and onnxruntime alone, at a fixed rate, on the pendulum."""

import json
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from dressage.export import Card, export_policy
from tests.ppo.test_policy import policy_for

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from examples import robot_loop

PROGRAM = "from dressage.cli.main import main; main()"
ROOT = Path(__file__).parents[2]

# All that the new environment knows: the physics of the pendulum, the loop of the documentation, the file.
EPISODES = """
import math, sys, time
import numpy as np
import robot_loop

class Pendulum:
    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.angle, self.speed, self.total = rng.uniform(-math.pi, math.pi), rng.uniform(-1, 1), 0.0

    def sense(self):
        return [math.cos(self.angle), math.sin(self.angle), self.speed]

    def actuate(self, action):
        torque = float(np.clip(action[0], -2, 2))
        angle = (self.angle + math.pi) % (2 * math.pi) - math.pi
        self.total -= angle**2 + 0.1 * self.speed**2 + 0.001 * torque**2
        self.speed = min(max(self.speed + (15 * math.sin(self.angle) + 3 * torque) * 0.05, -8.0), 8.0)
        self.angle += self.speed * 0.05

time.sleep = lambda seconds: None  # A simulated robot need not wait.
returns = []
for seed in range(300):
    robot = Pendulum(seed)
    robot_loop.run(sys.argv[1], robot.sense, robot.actuate, 200)
    returns.append(robot.total)
foreign = {"jax", "flax", "torch", "onnx", "dressage"} & set(sys.modules)
print(np.mean(returns), sorted(foreign))
"""


class Clock:
    """A time that passes only when somebody waits, or by a step that is slow."""

    def __init__(self):
        self.now, self.waits = 100.0, []

    def perf_counter(self):
        return self.now

    def sleep(self, seconds):
        self.waits.append(seconds)
        self.now += seconds


class Robot:
    """Gymnasium's pendulum; reading its sensors takes some time."""

    def __init__(self, clock, reading_s):
        self.env, self.clock, self.reading_s = gymnasium.make("Pendulum-v1").unwrapped, clock, reading_s
        self.observation, _ = self.env.reset(seed=0)
        self.log = []

    def sense(self):
        self.clock.now += next(self.reading_s)
        return self.observation

    def actuate(self, action):
        self.log.append((self.observation, action))
        self.observation = self.env.step(action)[0]


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    policy = policy_for(gymnasium.spaces.Box(-2, 2, (1,)), seed=3)
    path = tmp_path_factory.mktemp("robot") / "policy.onnx"
    export_policy(policy, path, card=Card(control_period_s=0.05))
    return policy, str(path)


def test_the_loop_acts_as_the_policy_and_keeps_its_rate(exported, monkeypatch):
    policy, path = exported
    clock = Clock()
    monkeypatch.setattr(robot_loop, "time", clock)
    slow_at_5 = iter([0.01] * 5 + [0.08] + [0.01] * 14)
    robot = Robot(clock, slow_at_5)
    late = robot_loop.run(path, robot.sense, robot.actuate, 20)
    assert late == 1
    assert clock.now == pytest.approx(100.0 + 20 * 0.05)  # no drift, the late step is caught up with
    assert clock.waits[0] == pytest.approx(0.04)
    assert (clock.waits[5], clock.waits[6]) == (0.0, pytest.approx(0.01))
    for observation, action in robot.log:
        np.testing.assert_allclose(action, policy.get_action(observation), rtol=1e-5, atol=1e-5)


def test_the_loop_is_as_short_as_the_page_says():
    lines = (ROOT / "examples" / "robot_loop.py").read_text().splitlines()
    body = [line for line in lines if line.strip() and '"""' not in line and line.strip()[0] != "#"]
    assert len(body) <= 20


def run(*command):
    finished = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=900, check=False
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The pendulum's policy as the command line trains and exports it."""
    path = tmp_path_factory.mktemp("runs") / "pendulum"
    run(sys.executable, "-c", PROGRAM, "train", "pendulum", "--quiet", "--no-film", "--run", path)
    return path / "policy" / "policy.onnx"


def new_environment(folder, requirement):
    """Make a virtual environment with NumPy and one onnxruntime; returns its Python and that version."""
    run(sys.executable, "-m", "venv", folder)
    python = folder / "bin" / "python"
    installed = subprocess.run(
        [str(python), "-m", "pip", "install", "--quiet", "numpy", requirement],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if installed.returncode:
        pytest.skip(f"{requirement} cannot be installed here: {installed.stderr[-200:]}")
    return python, run(python, "-c", "import onnxruntime; print(onnxruntime.__version__)")


@pytest.mark.slow
def test_new_environments_with_the_newest_and_the_previous_onnxruntime_reach_the_claimed_return(
    trained, tmp_path
):
    (tmp_path / "robot_loop.py").write_text((ROOT / "examples" / "robot_loop.py").read_text())
    (tmp_path / "episodes.py").write_text(EPISODES)
    content = json.loads(run(sys.executable, "-c", PROGRAM, "inspect", trained, "--json"))
    claimed = content["card"]["returns"]
    newest, version = new_environment(tmp_path / "newest", "onnxruntime")
    release = ".".join(version.split(".")[:2])
    previous, before = new_environment(tmp_path / "previous", f"onnxruntime<{release}")
    assert before.split(".")[:2] != version.split(".")[:2]
    for python in (newest, previous):
        mean, foreign = run(python, tmp_path / "episodes.py", trained).split(maxsplit=1)
        assert foreign == "[]"
        assert claimed["low"] <= float(mean) <= claimed["high"], (mean, claimed, version, before)
