"""Playing and filming with policies whose outcome can be counted by hand."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.envs import BaseEnv, make
from dressage.envs.spaces import Box
from dressage.reporting.filming import film_episode, median_index
from dressage.reporting.rollouts import HostActor, first_episodes, play_episodes


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


class Drawn(Countdown):
    """Its picture is as bright as it has steps to go."""

    def render(self, state):
        return np.full((4, 4, 3), int(state), np.uint8)


def make_countdown():
    return Countdown()


def make_drawn():
    return Drawn()


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


def start_of(key):
    return int(Countdown().reset(key)[0])


def return_from(start):
    """What `Echo` gets: it acts as it observes, five times at most."""
    return sum(range(max(start - 4, 1), start + 1))


def test_the_film_shows_the_episode_with_the_median_return():
    starts = sorted(start_of(key) for key in jax.random.split(jax.random.key(4), 11))
    assert starts[0] < starts[5] < starts[-1]
    pictures = film_episode(f"python:{__name__}:make_drawn", Echo(), 4)
    total = return_from(starts[5])
    assert (
        f"The episode with the median return of 11 with the most likely actions: {min(starts[5], 5)} step"
        in (pictures.note)
    )
    assert pictures.note.endswith(f", return {total:.1f}.")
    shown = [int(frame[0, 0, 0]) for frame in pictures.frames]
    assert shown == list(range(starts[5], max(starts[5] - 5, 0) - 1, -1))


def test_one_episode_is_filmed_as_it_comes():
    start = start_of(jax.random.split(jax.random.key(2), 1)[0])
    pictures = film_episode(f"python:{__name__}:make_drawn", Echo(), 2, episodes=1)
    assert pictures.note.startswith("One episode with the most likely actions: ")
    assert int(pictures.frames[0][0, 0, 0]) == start


@pytest.mark.parametrize(
    ("returns", "index"), [([3.0], 0), ([3.0, 1.0, 2.0], 2), ([4.0, 1.0, 3.0, 2.0], 3), ([1.0, 1.0, 1.0], 1)]
)
def test_the_median_is_one_of_the_episodes(returns, index):
    assert median_index(np.array(returns)) == index


def test_the_film_of_a_host_task_is_the_median_of_its_episodes():
    pytest.importorskip("pygame")
    task, actor = make("gymnasium:CartPole-v1"), HostActor(PushRight(), 0, stochastic=False)
    env = task.make(1)
    seeds = [int(word >> 1) for word in np.random.SeedSequence(7).generate_state(5)]
    returns = sorted(float(first_episodes(env, actor, 500, seed).returns[0]) for seed in seeds)
    env.close()
    pictures = film_episode("gymnasium:CartPole-v1", PushRight(), 7, episodes=5)
    assert pictures.note.startswith("The episode with the median return of 5 with")
    assert pictures.note.endswith(f"return {returns[2]:.1f}.")


def test_a_task_that_cannot_be_drawn_says_so():
    task = f"python:{__name__}:make_countdown"
    pictures = film_episode(task, Echo(), 0)
    assert pictures.frames == []
    assert pictures.note == f"No film: {task} has no render(state) that draws a picture."
