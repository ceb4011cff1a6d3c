"""Exceptions from a user's own environment: one line, the user's own frames, and a trace on demand."""

import sys

import pytest

from dressage.cli.foreign_errors import explain
from tests.cli.short_training import SHORT

OWN_TASK = """import jax.numpy as jnp
from dressage.envs.suite.pendulum import Pendulum


class WrongShapes(Pendulum):
    def step(self, state, action):
        return helper(state)


class Branches(Pendulum):
    def reset(self, rng):
        state, observation, info = super().reset(rng)
        if state.angle > 0:
            return state, observation, {}
        return state, observation, info


class Misfit(Pendulum):
    def step(self, state, action):
        return (*super().step(state, action), 1.0)


class NoArray(Pendulum):
    def step(self, state, action):
        state, observation, reward, terminated, truncated, info = super().step(state, action)
        return state, observation, reward, terminated, truncated, {"note": "text"}


def helper(state):
    return jnp.concatenate([jnp.zeros(2), jnp.zeros((3, 4))])


def missing():
    return {}["no key"]
"""


@pytest.fixture
def own_task(tmp_path, monkeypatch):
    """A module of the user's in the folder that the command is called from."""
    (tmp_path / "own_task.py").write_text(OWN_TASK, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("own_task", None)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (
            "missing",
            "error: KeyError in missing, own_task.py:34: 'no key'\n"
            "  own_task.py:34, in missing\n"
            '    return {}["no key"]\n',
        ),
        (
            "WrongShapes",
            "error: TypeError in helper, own_task.py:30: Cannot concatenate arrays with different numbers of "
            "dimensions: got (2,), (3, 4).\n"
            "  own_task.py:7, in step\n"
            "    return helper(state)\n"
            "  own_task.py:30, in helper\n"
            "    return jnp.concatenate([jnp.zeros(2), jnp.zeros((3, 4))])\n",
        ),
        (
            "Branches",
            "error: TracerBoolConversionError in reset, own_task.py:13: Attempted boolean conversion of "
            "traced array with shape bool[].\n"
            "  own_task.py:13, in reset\n"
            "    if state.angle > 0:\n",
        ),
    ],
)
def test_an_error_in_a_users_environment_is_told_in_its_own_lines(function, told, own_task, dressage):
    shown = dressage("train", f"python:own_task:{function}", *SHORT)
    assert shown.exit_code == 1
    assert shown.stderr.startswith(told)
    assert shown.stderr.endswith("The whole trace: dressage --debug ..., or DRESSAGE_DEBUG=1.\n")
    assert "Traceback" not in shown.output
    assert [entry.name for entry in own_task.iterdir() if entry.is_dir() and entry.name == "runs"] == []


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (
            "Misfit",
            "Misfit.step must return (state, observation, reward, terminated, truncated, info), got 7",
        ),
        ("NoArray", "NoArray.step must return arrays and numbers only: function step at "),
    ],
)
def test_an_environment_that_breaks_its_contract_is_told_in_a_line(name, told, own_task, dressage):
    shown = dressage("train", f"python:own_task:{name}", *SHORT)
    assert (shown.exit_code, shown.stderr.count("\n")) == (1, 1)
    assert told in shown.stderr


def test_a_module_that_fails_while_it_is_imported_is_told_in_its_own_line(own_task, dressage):
    (own_task / "broken_import.py").write_text("value = 1 / 0\n", encoding="utf-8")
    shown = dressage("config", "--task", "python:broken_import:make")
    assert shown.exit_code == 1
    assert shown.stderr.startswith(
        "error: ZeroDivisionError in <module>, broken_import.py:1: division by zero\n"
        "  broken_import.py:1, in <module>\n"
        "    value = 1 / 0\n"
    )


@pytest.mark.parametrize("words", [("--debug",), ()])
def test_the_whole_trace_is_shown_on_demand(words, own_task, dressage, monkeypatch):
    monkeypatch.setenv("JAX_TRACEBACK_FILTERING", "off")  # Set here first, so that it is put back.
    if not words:
        monkeypatch.setenv("DRESSAGE_DEBUG", "1")
    shown = dressage(*words, "train", "python:own_task:missing")
    assert shown.exit_code == 1
    assert "Traceback (most recent call last)" in shown.stderr
    assert "registry.py" in shown.stderr
    assert "error: KeyError in missing" in shown.stderr


def test_an_error_of_ours_is_not_told_as_a_users(dressage, monkeypatch):
    monkeypatch.setattr("dressage.cli.task_tables.PREFIXES", {"x": None})
    with pytest.raises(AttributeError, match="NoneType"):
        dressage("tasks")


def test_an_exception_without_frames_is_not_explained():
    assert explain(ValueError("nowhere")) is None
