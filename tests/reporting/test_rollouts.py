"""Playing and filming with policies whose outcome can be counted by hand."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.envs import BaseEnv, make
from dressage.envs.spaces import Box
from dressage.reporting.rollouts import film_episode, play_episodes


@dataclass(frozen=True)
class Countdown(BaseEnv):
    """Starts at 1 to 8 and counts down; the reward is the action; ends at 0."""

    max_steps: int = 5

    def reset(self, rng):
        count = jax.random.randint(rng, (), 1, 9)
        return count, count[None].astype(jnp.float32), {}

    def step(self, state, action):
        count = state - 1
        return count, count[None].astype(jnp.float32), action.reshape(()), count <= 0, False, {}

    def observation_space(self, state):
        return Box(0.0, 9.0, (1,))

    def action_space(self, state):
        return Box(-10.0, 10.0, (1,))


class Echo:
    """Acts as it observes; adds noise where it is given a key."""

    def get_action(self, obs, rng=None):
        noise = 0.0 if rng is None else jax.random.normal(rng, obs.shape)
        return obs + noise


jax.tree_util.register_static(Echo)


class PushRight:
    """Pushes the cart to the right, always."""

    def get_action(self, obs, rng=None):
        return jnp.ones(obs.shape[:-1], jnp.int32)


def make_countdown():
    return Countdown()


def test_each_copy_plays_one_episode_to_its_end_or_its_time_limit():
    played = play_episodes(Countdown(), Echo(), 64, 0, stochastic=False)
    starts = np.round((np.sqrt(1 + 8 * played.returns) - 1) / 2)  # n + (n - 1) + ... + 1 for short episodes
    short = played.lengths < 5
    np.testing.assert_array_equal(played.lengths[short], starts[short])
    assert set(played.returns[~short]) == {
        5 + 4 + 3 + 2 + 1,
        6 + 5 + 4 + 3 + 2,
        7 + 6 + 5 + 4 + 3,
        8 + 7 + 6 + 5 + 4,
    }
    assert played.finished.all()
    assert 0 < short.sum() < 64


def test_the_same_seed_gives_the_same_episodes_and_sampling_changes_them():
    first, again = (play_episodes(Countdown(), Echo(), 8, 3, stochastic=False) for _ in range(2))
    np.testing.assert_array_equal(first.returns, again.returns)
    sampled = play_episodes(Countdown(), Echo(), 8, 3, stochastic=True)
    np.testing.assert_array_equal(sampled.lengths, first.lengths)
    assert (sampled.returns != first.returns).all()


def test_episodes_of_gymnasium_are_played_on_the_host():
    played = play_episodes(make("gymnasium:CartPole-v1"), PushRight(), 6, 0, stochastic=False)
    assert played.finished.all()
    np.testing.assert_array_equal(played.returns, played.lengths)
    assert set(played.lengths) <= {8, 9, 10, 11}  # a pole pushed one way falls in about ten steps


def test_an_environment_of_gymnasium_is_filmed_at_its_own_pace():
    pytest.importorskip("pygame")
    pictures = film_episode("gymnasium:CartPole-v1", PushRight(), 0)
    assert pictures.frames_per_second == 50.0
    assert f": {len(pictures.frames)} steps, return {len(pictures.frames)}.0." in pictures.note
    assert pictures.frames[0].shape == (200, 300, 3)


def test_a_task_that_cannot_be_drawn_says_so():
    task = f"python:{__name__}:make_countdown"
    pictures = film_episode(task, Echo(), 0)
    assert pictures.frames == []
    assert pictures.note == f"No film: {task} has no render(state) that draws a picture."
