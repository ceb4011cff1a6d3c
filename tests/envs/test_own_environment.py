"""The example of the page on environments runs, is as short as promised, and does what the page says."""

import runpy
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from dressage.envs import VectorEnv, check_environment, make

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "own_environment.py"
PAGE = ROOT / "docs" / "environments.md"


def section(name):
    text = EXAMPLE.read_text(encoding="utf-8")
    return text.split(f"# --8<-- [start:{name}]\n")[1].split(f"# --8<-- [end:{name}]")[0]


def test_the_example_runs_as_a_script(capsys):
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert "returns of the last episodes" in capsys.readouterr().out


def test_the_environment_of_the_example_has_about_thirty_lines():
    assert len([line for line in section("environment").strip().splitlines() if line.strip()]) <= 30


def test_the_page_shows_both_parts_of_the_example():
    page = PAGE.read_text(encoding="utf-8")
    for name in ("environment", "use"):
        assert f'--8<-- "examples/own_environment.py:{name}"' in page and section(name)


def test_a_ferry_that_steers_against_the_current_lands_and_terminates():
    env = make("python:examples.own_environment:make", current=0.4)
    check_environment(env)
    vector = VectorEnv(env, 2)

    @jax.jit
    def rollout(key):
        state, _ = vector.reset(key)
        return jax.lax.scan(vector.step, state, jnp.full((12, 2, 1), 0.4))[1]

    steps = rollout(jax.random.key(0))
    # Steering as strongly as the current flows keeps the boat's place; ten steps of 0.1 cross the river.
    assert np.flatnonzero(steps.terminated[:, 0]).tolist() == [9]
    assert not steps.truncated.any()
    assert (np.abs(steps.final_observation[9, :, 1]) < 0.06).all()
