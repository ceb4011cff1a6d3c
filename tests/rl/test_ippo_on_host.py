"""IPPO over copies of a ParallelEnv: equal to the compiled driver, resumed, spoiled, and in processes."""

import dataclasses
import multiprocessing

import numpy as np
import pytest

from dressage import envs
from dressage.errors import (
    ConfigError,
    EnvironmentContractError,
    EnvironmentRaisedError,
    NonFiniteError,
    WorkerLostError,
)
from dressage.rl.ippo import IPPO
from tests.rl.rl_toys import SMALL, Relay, Script, assert_equal, largest_difference, leaves_of
from tests.workers.parallel_toys import Exiting, Raising

ROLLOUT = 8


def make_relay():
    """A copy of `Relay` as PettingZoo sees it; at the top of a module, so that workers can make it."""
    return envs.to_parallel_env(Relay())


@pytest.fixture(scope="module")
def longer():
    return IPPO(SMALL).train(make_relay, 3 * ROLLOUT)


def test_both_drivers_learn_the_same(longer):
    compiled = IPPO(SMALL).train(Relay(), 3 * ROLLOUT)
    assert largest_difference(longer.agent_states, compiled.agent_states) < 1e-5
    assert longer.history == compiled.history
    assert longer.progress == compiled.progress
    for agent in ("a", "b"):
        for ours, theirs in zip(longer.metrics[agent], compiled.metrics[agent], strict=True):
            assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-5, nan_ok=True)


def test_two_calls_and_a_folder_are_one_longer_call_bit_for_bit(longer, tmp_path):
    learner = IPPO(SMALL)
    first = learner.train(make_relay, ROLLOUT)
    first.save(tmp_path)
    both = learner.train(make_relay, 2 * ROLLOUT)
    resumed = IPPO(SMALL, seed=5).train(make_relay, 2 * ROLLOUT, resume_from=tmp_path)
    for result in (both, resumed):
        assert_equal(result.state, longer.state)
        assert result.history == longer.history
        assert_equal(result.metrics, longer.metrics)


def test_a_closed_learner_goes_on_where_it_stopped(longer):
    learner = IPPO(SMALL)
    learner.train(make_relay, ROLLOUT)
    learner.close()
    assert_equal(learner.train(make_relay, 2 * ROLLOUT).state, longer.state)


def test_copies_that_rest_do_not_step(longer):
    made = []

    def make():
        made.append(Script([{"agents": "ab"}] * 100))
        return made[-1]

    learner = IPPO(SMALL)
    assert learner.train(make, ROLLOUT + 5).progress.steps == 13
    assert [len(env.sent) for env in made[-2:]] == [4 + 3, 4 + 2]
    learner.train(make, ROLLOUT)
    assert [len(env.sent) for env in made[-2:]] == [11, 10]


def test_environments_that_cannot_be_saved_start_new_episodes_when_training_is_resumed():
    def make():
        return Script([{"agents": "ab"}] * 100)

    first = IPPO(SMALL).train(make, ROLLOUT)
    assert first.state.environment == ()
    resumed = IPPO(SMALL).train(make, ROLLOUT, resume_from=first)
    assert resumed.progress.episode_starts == (8, 8)
    assert (resumed.progress.updates, resumed.progress.steps) == (2, 16)


def test_evaluation_plays_whole_episodes_in_copies_of_its_own(longer):
    learner = IPPO(SMALL)
    learner.train(make_relay, ROLLOUT)
    played = learner.evaluate(make_relay, 3)
    np.testing.assert_array_equal(played["a"]["lengths"], [2, 2, 2])
    np.testing.assert_array_equal(played["a"]["costs"], [3, 3, 3])
    np.testing.assert_array_equal(played["b"]["returns"], [15, 15, 15])
    assert_equal(learner.train(make_relay, 2 * ROLLOUT).state, longer.state)


def test_the_one_environment_given_is_one_copy():
    learner, env = IPPO({name: value for name, value in SMALL.items() if name != "num_envs"}), make_relay()
    assert learner.train(env, 4).progress == dataclasses.replace(
        learner.train(env, 0).progress, updates=1, steps=4
    )
    with pytest.raises(ConfigError, match="was trained in the one ParallelFace that there is"):
        learner.evaluate(env, 2)
    with pytest.raises(ConfigError, match="'num_envs' is 2, but of the ParallelFace given there is only one"):
        IPPO(SMALL).train(env, 4)
    with pytest.raises(
        ConfigError, match="'num_workers' is 1, but of the ParallelFace given there is only one"
    ):
        IPPO({"num_workers": 1}).train(env, 4)


def test_what_is_no_environment_is_refused():
    with pytest.raises(ConfigError, match="IPPO trains on a functional environment .*; got int"):
        IPPO(SMALL).train(3, 8)
    with pytest.raises(
        EnvironmentContractError, match="must make a pettingzoo.ParallelEnv or a gymnasium.Env"
    ):
        IPPO(SMALL).train(dict, 8)


class Spoiled(Script):
    """Gives a bad number in its sixth step, once."""

    used = False

    def __init__(self, field, value):
        super().__init__([{"agents": "ab"}] * 100)
        self.field, self.value = field, value

    def step(self, actions):
        observations, rewards, terminations, truncations, infos = super().step(actions)
        if self.count == 6 and not Spoiled.used:
            Spoiled.used = True
            if self.field == "observation":
                observations["b"] = np.array([0.0, self.value], np.float32)
            elif self.field == "reward":
                rewards["b"] = self.value
            else:
                infos["b"] = {"cost": self.value}
        return observations, rewards, terminations, truncations, infos


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("observation", np.nan, r"final observation of agent 'b' \(component 1\)"),
        ("reward", np.inf, "reward of agent 'b'"),
        ("cost", -np.inf, "cost 'cost' of agent 'b'"),
    ],
)
def test_a_number_that_is_not_finite_stops_training_before_it_is_learned_from(field, value, words):
    Spoiled.used = False
    learner = IPPO(SMALL)

    def make():
        return Spoiled(field, value)

    before = learner.train(make, ROLLOUT)
    with pytest.raises(NonFiniteError, match=rf"Environment copy 0, step 5 of that copy .*: the {words} is"):
        learner.train(make, 2 * ROLLOUT)
    after = learner.train(make, 0)
    assert_equal(after.agent_states, before.agent_states)
    assert after.progress == dataclasses.replace(before.progress, episode_starts=(8, 8))
    later = learner.train(make, 2 * ROLLOUT)
    assert later.progress.steps == 24
    assert largest_difference(later.agent_states, before.agent_states) > 0
    assert all(np.isfinite(leaf).all() for leaf in leaves_of(later.agent_states))


def test_what_an_environment_raises_is_told_with_its_place_and_training_can_go_on():
    learner = IPPO(SMALL)
    with pytest.raises(EnvironmentRaisedError, match="copy 0, step 1 of that copy .* step raised KeyError"):
        learner.train(Raising, ROLLOUT)
    with pytest.raises(EnvironmentRaisedError, match="no such wheel"):
        learner.train(Raising, ROLLOUT)


def test_costs_that_are_no_numbers_are_no_business_of_a_learner_without_a_limit():
    class Talkative(Script):
        def step(self, actions):
            *others, infos = super().step(actions)
            return *others, {**infos, "b": {"cost": "dear"}}

    env = Talkative([{"agents": "ab"}] * 3 + [{"agents": "", "term": "ab"}])
    result = IPPO({**SMALL, "num_envs": 1}).train(env, 4)
    assert result.history[0]["agent_costs"] == {"a": 6, "b": 0}


@pytest.mark.slow
def test_worker_processes_change_nothing_and_a_lost_one_is_named(longer):
    learner = IPPO({**SMALL, "num_workers": 2})
    result = learner.train(make_relay, 3 * ROLLOUT)
    assert result.state.environment == ()  # What lies in other processes is not saved.
    # One copy acts here where two act in one process: products of other shapes round otherwise.
    assert largest_difference(result.agent_states, longer.agent_states) < 1e-6
    assert result.history == longer.history
    assert len(multiprocessing.active_children()) == 2
    learner.close()
    assert multiprocessing.active_children() == []
    learner = IPPO({**SMALL, "num_workers": 1})
    with pytest.raises(
        WorkerLostError, match=r"Worker 0 \(environment copies 0 to 1, pid \d+\) ended with exit"
    ):
        learner.train(Exiting, ROLLOUT)
    assert multiprocessing.active_children() == []


def test_a_functional_environment_has_no_workers():
    with pytest.raises(ConfigError, match="'num_workers' is for host environments"):
        IPPO({**SMALL, "num_workers": 1}).train(Relay(), 8)
