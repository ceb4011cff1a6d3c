"""Runs in chunks over functional environments and over Gymnasium environments on the host."""

from dataclasses import dataclass

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.envs import BaseEnv, make
from dressage.envs.spaces import Discrete
from dressage.errors import ConfigError
from dressage.ppo import Config, Trainer, make_trainer
from tests.ppo.small_tasks import SMALL, assert_same_bits, flat

METRICS = {
    "train/loss",
    "train/policy_loss",
    "train/value_loss",
    "train/entropy",
    "train/approx_kl",
    "train/clip_fraction",
    "train/explained_variance",
    "train/learning_rate",
    "train/gradient_norm",
    "train/skipped_minibatches",
    "train/episode_return",
    "train/episode_length",
    "train/episodes",
}


@dataclass(frozen=True)
class Rooms(BaseEnv):
    """Four rooms in a row, numbered from 2; right is action 5; the last room pays 1 and ends the episode."""

    max_steps: int = 6

    def reset(self, rng):
        room = jax.random.randint(rng, (), 2, 5)
        return room, room, {}

    def step(self, state, action):
        room = jnp.clip(state + jnp.where(action == 5, 1, -1), 2, 5)
        return room, room, (room == 5).astype(jnp.float32), room == 5, jnp.bool_(False), {}

    def observation_space(self, state):
        return Discrete(4, start=2)

    def action_space(self, state):
        return Discrete(2, start=4)


@pytest.fixture(scope="module")
def rooms():
    trainer = make_trainer(Rooms(), Config(**SMALL | {"FIXED_INIT": False}), seeds=(0, 5))
    state, metrics = trainer.advance(trainer.init(), 3)
    return trainer, state, metrics


@pytest.fixture(scope="module")
def host():
    config = Config(**SMALL | {"NUM_MINIBATCHES": 2, "NUM_STEPS": 12, "NORMALIZE_ENV": True})
    trainer = make_trainer(make("gymnasium:CartPole-v1"), config, seeds=(0,))
    state, metrics = trainer.advance(trainer.init(), 2)
    return trainer, state, metrics, trainer.evaluate(state)


def test_a_trainer_says_what_will_run(rooms, host):
    trainer, state, _ = rooms
    assert isinstance(trainer, Trainer)
    assert (trainer.seeds, trainer.steps_per_update, trainer.num_updates) == ((0, 5), 32, 5)
    assert (trainer.updates_done(state), trainer.steps_done(state)) == (3, 96)
    assert trainer.exact_resume
    assert not host[0].exact_resume  # Gymnasium cannot give an environment's state
    assert (host[0].seeds, host[0].steps_per_update, host[0].num_updates) == ((0,), 48, 4)


def test_metrics_have_their_promised_names_and_one_number_a_seed(rooms, host):
    for (_, _, metrics, *_), seeds in ((rooms, 2), (host, 1)):
        assert set(metrics) == METRICS
        assert {values.shape for values in metrics.values()} == {(seeds,)}
    assert np.all(rooms[2]["train/episodes"] > 0)
    assert np.all((0 <= rooms[2]["train/episode_return"]) & (rooms[2]["train/episode_return"] <= 1))
    assert np.all((1 <= rooms[2]["train/episode_length"]) & (rooms[2]["train/episode_length"] <= 6))


def test_a_chunk_in_which_no_episode_ended_reports_nan_instead_of_0(rooms):
    trainer, _, _ = rooms
    _, metrics = trainer.advance(trainer.init(), 0)
    np.testing.assert_array_equal(metrics["train/episodes"], 0)
    assert np.isnan(metrics["train/episode_return"]).all()


def test_a_policy_outlives_the_state_that_it_was_taken_from(rooms):
    trainer, state, _ = rooms
    copied = jax.tree.map(lambda leaf: leaf.copy(), state)
    policy = trainer.policy(copied, 1)
    kept = np.array(policy.value([2, 3, 4, 5]))
    trainer.advance(copied, 1)
    np.testing.assert_array_equal(policy.value([2, 3, 4, 5]), kept)


def test_discrete_observations_and_offset_actions_reach_policy_and_environment(rooms):
    trainer, state, _ = rooms
    policy = trainer.policy(state, 0)
    actions = policy.get_action(np.array([2, 3, 4, 5, 2]))
    assert set(np.asarray(actions)) <= {4, 5}
    assert actions[0] == actions[4]
    assert policy.get_action(3).shape == ()
    scores = trainer.evaluate(state)
    assert scores["eval/finished"].all()
    assert scores["eval/lengths"].max() <= 6


@pytest.mark.slow
def test_rooms_are_learned_to_the_end():
    trainer = make_trainer(
        Rooms(), Config(**SMALL | {"FIXED_INIT": False, "TOTAL_TIMESTEPS": 32 * 60}), seeds=(0, 1)
    )
    state, _ = trainer.advance(trainer.init(), 60)
    np.testing.assert_array_equal(trainer.policy(state, 1).get_action(np.array([2, 3, 4])), 5)
    np.testing.assert_array_equal(trainer.evaluate(state)["eval/returns"], 1)


def test_seeds_must_be_given():
    with pytest.raises(ConfigError, match="needs at least one seed, got none"):
        make_trainer(Rooms(), Config(**SMALL), seeds=())


def test_host_tasks_refuse_what_only_functional_environments_can_do():
    with pytest.raises(ConfigError, match="'OFFSET_STEP' works on functional environments only"):
        make_trainer(make("gymnasium:CartPole-v1"), Config(**SMALL | {"OFFSET_STEP": True}))


def test_a_host_run_without_evaluation_evaluates_to_nothing():
    trainer = make_trainer(make("gymnasium:CartPole-v1"), Config(**SMALL | {"NUM_EVAL_ENVS": 0}))
    assert trainer.evaluate(None) == {}


def test_a_host_run_trains_and_counts_its_own_samples(host):
    trainer, state, metrics, _ = host
    assert (trainer.updates_done(state), trainer.steps_done(state)) == (2, 96)
    assert metrics["train/episodes"] > 0
    assert metrics["train/skipped_minibatches"] == 0
    # Copies are reset within the step that ends their episode, so that every row is a step and a sample.
    assert float(state.agents[0].observation_moments.count) == 96.0


def test_a_host_evaluation_plays_whole_episodes_and_changes_nothing(host):
    trainer, state, _, scores = host
    assert scores["eval/returns"].shape == (1, 3)
    assert scores["eval/finished"].all()
    np.testing.assert_array_equal(scores["eval/returns"], scores["eval/lengths"])  # CartPole pays 1 a step
    before = flat(state.agents[0].params)
    assert_same_bits(trainer.evaluate(state), scores)
    np.testing.assert_array_equal(flat(state.agents[0].params), before)


def test_a_host_policy_acts_in_the_environment_that_it_was_trained_in(host):
    trainer, state, *_ = host
    policy = trainer.policy(state)
    env = gymnasium.make("CartPole-v1")
    obs, _ = env.reset(seed=0)
    for step in range(5):
        action = np.asarray(policy.get_action(obs, jax.random.key(step)))
        assert env.action_space.contains(action.astype(np.int64))
        obs, *_ = env.step(int(action))
    env.close()


def test_several_seeds_on_the_host_equal_each_alone(host):
    _, state, metrics, _ = host
    config = Config(**SMALL | {"NUM_MINIBATCHES": 2, "NUM_STEPS": 12, "NORMALIZE_ENV": True})
    trainer = make_trainer(make("gymnasium:CartPole-v1"), config, seeds=(0, 1))
    both, side_by_side = trainer.advance(trainer.init(), 2)
    assert side_by_side["train/loss"].shape == (2,)
    assert side_by_side["train/loss"][0] == metrics["train/loss"][0]
    assert_same_bits(both[0].agents[0].params, state.agents[0].params)
    assert np.any(flat(both[1].agents[0].params) != flat(both[0].agents[0].params))
    assert trainer.evaluate(both)["eval/returns"].shape == (2, 3)
    first, second = (trainer.policy(both, index).model["actor"]["Dense_0"]["kernel"] for index in range(2))
    assert np.any(np.asarray(first) != np.asarray(second))


def test_a_continuous_host_task_has_its_bounds_from_gymnasium():
    config = Config(**SMALL | {"NUM_EVAL_ENVS": 0, "TOTAL_TIMESTEPS": 32})
    trainer = make_trainer(make("gymnasium:Pendulum-v1"), config)
    state, _ = trainer.advance(trainer.init(), 1)
    policy = trainer.policy(state)
    np.testing.assert_array_equal(policy.act_scaling.high, [2.0])
    acted = np.asarray(policy.get_action(np.zeros((50, 3)), jax.random.key(0)))
    assert acted.shape == (50, 1)
    assert 1 < np.abs(acted).max() <= 2


class Counting(gymnasium.Env):
    """Ends every third step and counts the steps of all copies."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        self.left = 3
        return np.zeros(2, np.float32), {}

    def step(self, action):
        Counting.steps += 1
        self.left -= 1
        return np.zeros(2, np.float32), 1.0, self.left == 0, False, {}


def test_the_steps_that_a_host_run_reports_are_those_that_its_environments_made(monkeypatch):
    monkeypatch.setitem(
        gymnasium.registry, "Counting-v0", gymnasium.envs.registration.EnvSpec("Counting-v0", Counting)
    )
    config = Config(**SMALL | {"NUM_MINIBATCHES": 2, "NUM_STEPS": 12, "NUM_EVAL_ENVS": 0})
    trainer = make_trainer(make("gymnasium:Counting-v0"), config)
    state, _ = trainer.advance(trainer.init(), 1)
    assert trainer.steps_done(state) == Counting.steps == 12 * config.NUM_ENVS
