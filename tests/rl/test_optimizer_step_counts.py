"""The optimiser applications foretold are those that a real training makes, for every way to train."""

import numpy as np
import pytest

from dressage.rl.base import num_optimizer_steps_for_timesteps
from dressage.rl.ippo import IPPO
from tests.rl.rl_toys import SMALL, Relay, assert_equal, leaves_of

# Timesteps, samples of a rollout, epochs, requested minibatches, applications; then copies to train with.
ROWS = [
    pytest.param(1024, 128, 4, 4, 128, 4, marks=pytest.mark.slow),
    pytest.param(1000, 128, 4, 4, 128, 4, marks=pytest.mark.slow),
    pytest.param(130, 128, 2, 4, 12, 4, marks=pytest.mark.slow),
    pytest.param(64, 128, 4, 4, 16, 1, marks=pytest.mark.slow),
    pytest.param(10, 10, 1, 4, 4, 2, marks=pytest.mark.slow),
    pytest.param(10, 10, 3, 16, 30, 1, marks=pytest.mark.slow),
    (7, 3, 2, 2, 10, 3),
    pytest.param(7, 3, 2, 2, 10, 1, marks=pytest.mark.slow),
    pytest.param(0, 128, 4, 4, 0, 2, marks=pytest.mark.slow),
]


def counts(timesteps, samples, epochs, minibatches, copies, **options):
    """Train two agents that never leave before the time limit.

    Returns:
        All counts of applications: the schedule's end, the learners' and their optimisers' own.
    """
    options = {
        "num_envs": copies,
        "rollout_length": samples // copies,
        "learning_epochs": epochs,
        "mini_batches": minibatches,
        "anneal_learning_rate": True,
        **options,
    }
    learner = IPPO({**SMALL, **options})
    result = learner.train(Relay(leaves=9), timesteps)
    (group,) = learner._training.groups
    counted = {int(group.learner.total_optimizer_steps)}
    for state in result.agent_states.values():
        counted |= {int(state.optimizer_steps), int(state.opt_state.count)}
        assert all(np.isfinite(leaf).all() for leaf in leaves_of(state.params))
    assert all(row["skipped_minibatches"] == 0 for rows in result.metrics.values() for row in rows)
    return counted


@pytest.mark.parametrize(("timesteps", "samples", "epochs", "minibatches", "expected", "copies"), ROWS)
def test_every_row_of_the_table_is_what_a_training_makes(
    timesteps, samples, epochs, minibatches, expected, copies
):
    foretold = num_optimizer_steps_for_timesteps(timesteps, samples, epochs, minibatches)
    assert foretold == expected
    assert counts(timesteps, samples, epochs, minibatches, copies) == {expected}


def test_agents_that_share_a_network_give_it_the_samples_of_all_of_them():
    # Two rollouts of 3 steps x 2 agents = 6 samples in 6 parts, one of 2 samples in 2 parts, each twice.
    assert counts(7, 3, 2, 8, 3, share_parameters=True) == {28}


def test_a_recurrent_network_learns_as_often_as_one_without_memory():
    assert counts(7, 3, 2, 2, 3, recurrent=True) == {10}


@pytest.mark.slow
def test_the_rate_falls_to_the_end_of_the_whole_training_and_no_further():
    learner, env = IPPO({**SMALL, "anneal_learning_rate": True, "learning_rate": 0.1}), Relay()
    first = learner.train(env, 16)  # 8 applications
    assert [row["learning_rate"] for row in first.metrics["a"]] == pytest.approx([0.1, 0.05])
    both = learner.train(env, 16)  # The schedule now ends at 16.
    assert [row["learning_rate"] for row in both.metrics["a"][2:]] == pytest.approx([0.05, 0.025])
    resumed = IPPO({**SMALL, "anneal_learning_rate": True, "learning_rate": 0.1})
    again = resumed.train(Relay(), 16, resume_from=first)
    assert_equal(again.metrics, both.metrics)
