import subprocess
import sys

import numpy as np
import pytest

from dressage.errors import ConfigError
from dressage.policy import Fragment, PolicyConfig, TrainConfig


def test_a_misspelled_rollout_mode_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"rollout_mode must be 'sync' or 'async', got 'asynch'.*'async'"):
        PolicyConfig(rollout_mode="asynch")


def test_a_time_out_rule_that_does_not_exist_is_refused_with_those_that_do():
    with pytest.raises(ConfigError, match=r"time_out_bootstrap must be 'final_observation' or 'rsl_rl'"):
        PolicyConfig(time_out_bootstrap="none")


@pytest.mark.parametrize(("rank", "world_size"), [(2, 2), (-1, 1), (0, 0)])
def test_a_rank_outside_its_world_is_refused(rank, world_size):
    with pytest.raises(ConfigError, match=rf"rank must lie in 0 to world_size - 1, got {rank} of"):
        TrainConfig(rank=rank, world_size=world_size)


def test_a_fragment_knows_its_size():
    fragment = Fragment("pendulum", 3, {"reward": np.zeros((5, 2))}, {})
    assert (fragment.num_steps, fragment.num_envs) == (5, 2)


def test_the_protocol_imports_no_framework():
    loaded = "import sys, dressage.policy; print([n for n in ('torch', 'jax', 'rsl_rl') if n in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == "[]"
