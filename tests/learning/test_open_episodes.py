"""What is summed over an episode: ended where an agent vanishes, left alone by copies that rest."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.learning.cost_tracking import CostTracking
from dressage.learning.records import AgentState, Experience, Observed, Outcome
from dressage.learning.scan_driver import forget_open_episodes, rest


def tracked(costs, ends, valid):
    """Add one stream's rollout, `[T]` each, to trackers that have seen nothing."""
    rows = (jnp.array(row)[:, None] for row in (costs, ends, valid))
    costs, ends, valid = rows
    with jax.disable_jit():
        return CostTracking.start((1,)).update(costs.astype(jnp.float32), ends, 1.0, valid)


def test_an_episode_that_ends_in_a_row_that_is_no_sample_counts_with_what_it_had():
    # Costs 3 and 2, then the agent vanishes; behind a gap it comes back and pays 5.
    tracking, finished = tracked(
        [3, 2, 9, 0, 5], [False, False, True, False, False], [True, True, False, False, True]
    )
    assert finished == 1
    assert tracking.last_return == 5 and tracking.last_scale == pytest.approx(1 / 2)
    assert float(tracking.episode.running_return[0]) == 5 and float(tracking.episode.running_mass[0]) == 1


def test_an_end_before_anything_was_seen_is_no_episode():
    tracking, finished = tracked([9, 4], [True, False], [False, True])
    assert finished == 0 and not tracking.seen
    assert float(tracking.episode.running_return[0]) == 4


def test_copies_that_rest_end_no_episode():
    flags = jnp.ones((2, 3), bool)  # two agents, three copies: all would have ended
    outcome = Outcome(None, None, jnp.zeros((2, 3)), flags, flags, None, None, copy_ends=flags)
    rows = (Experience(Observed(jnp.zeros((2, 3, 1))), None, None, outcome),)
    (rested,) = rest(rows, jnp.array([True, True, False]))
    for field in ("valid", "terminated", "episode_ends", "copy_ends"):
        np.testing.assert_array_equal(getattr(rested.outcome, field), [[True, True, False]] * 2)


class Limit:
    def restart(self):
        return "anew"


def test_agents_whose_environments_start_anew_forget_their_open_episodes_and_nothing_else():
    sums = jnp.array([1.0, 2.0])
    one = AgentState(
        {"w": sums}, (), jnp.float32(0.1), jnp.int32(3), discounted_returns=sums, constraint=Limit()
    )
    (after,) = forget_open_episodes((one,))
    np.testing.assert_array_equal(after.discounted_returns, [0, 0])
    assert after.constraint == "anew"
    assert after.params is one.params and after.optimizer_steps == 3
    tracking, _ = tracked([3, 2, 4], [False, True, False], [True, True, True])
    restarted = tracking.restart()
    assert restarted.last_return == tracking.last_return == 5 and restarted.seen
    np.testing.assert_array_equal(restarted.episode.running_return, [0])
    np.testing.assert_array_equal(restarted.episode.discount, [1])
