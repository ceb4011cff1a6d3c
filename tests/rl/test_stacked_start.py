"""Large networks of several agents, drawn side by side."""

import subprocess
import sys

import pytest

PROGRAM = """
import jax
from dressage import envs
from dressage.rl.ippo import IPPO

env = envs.make("crossing", num_agents=3, continuous=False)
learner = IPPO({"num_envs": 32, "rollout_length": 128, "network": {"hidden_sizes": [64, 64]}})
prepared = learner.prepare(env)
run = prepared.make_run(learner.make_groups(prepared, 4096), (0,))
print(len(jax.tree.leaves(jax.block_until_ready(run.init()))))
"""


@pytest.mark.slow
def test_three_agents_with_networks_of_usual_size_are_drawn_and_do_not_wait_for_one_another():
    """Where decompositions run on several threads at once they block one another for good."""
    started = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=600)
    assert started.returncode == 0, started.stderr
    assert int(started.stdout) > 20
