"""What the tests of the command line share: its calls, and short trainings."""

import math
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from dressage.cli.main import app
from tests.cli.short_training import SHORT


@pytest.fixture(scope="session")
def dressage():
    """Run the command line in this process."""
    return lambda *words: CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


@pytest.fixture(scope="session")
def spawn():
    """Start the command line in a process of its own."""
    program = [sys.executable, "-c", "from dressage.cli.main import main; main()"]

    def start(*words):
        command = [*program, *map(str, words)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return start


@pytest.fixture(scope="session")
def finished(dressage, tmp_path_factory):
    """A short finished run of the pendulum."""
    path = tmp_path_factory.mktemp("runs") / "pendulum"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dressage.cli.training_loop.CHECKPOINT_S", math.inf)  # As in test_resume.
        shown = dressage("train", "pendulum", *SHORT, "--run", path)
    assert shown.exit_code == 0, shown.output
    return path, shown.output


@pytest.fixture(scope="session")
def finished_seeds(dressage, tmp_path_factory):
    """A short finished run of three seeds."""
    path = tmp_path_factory.mktemp("runs") / "three"
    shown = dressage("train", "pendulum", *SHORT, "--seeds", "3", "--seed", "5", "--no-film", "--run", path)
    assert shown.exit_code == 0, shown.output
    return path, shown.output
