"""Training behind shields: metrics tell how often they intervened, and nothing unsafe happens."""

import jax.numpy as jnp
import numpy as np
import pytest

from dressage.envs import make, to_parallel_env
from dressage.learning.records import Experience, Outcome
from dressage.learning.update_log import _shield_rate
from dressage.rl.ippo import IPPO
from dressage.rl.parameterized_ippo import ParameterizedIPPO
from dressage.shield import ShieldedParallelEnv

SMALL = {"num_envs": 16, "rollout_length": 64, "learning_epochs": 2, "network": {"hidden_sizes": (16,)}}


def rollout(intervened, valid):
    zeros = jnp.zeros(np.shape(intervened))
    flags = jnp.asarray(intervened), None if valid is None else jnp.asarray(valid)
    outcome = Outcome(
        None, zeros, zeros, zeros, zeros, zeros, zeros, valid=flags[1], intervened=flags[0].astype(bool)
    )
    return Experience(None, None, None, outcome)


def test_the_rate_counts_the_steps_of_living_agents():
    # Two steps of two agents in two copies: of the first 3 of 4 samples, of the second 1 of 2.
    intervened = np.array([[[1, 0], [1, 1]], [[1, 1], [1, 0]]], bool)
    valid = np.array([[[1, 1], [0, 0]], [[1, 1], [1, 1]]], bool)
    np.testing.assert_allclose(_shield_rate(rollout(intervened, valid)), [0.75, 0.5])
    np.testing.assert_allclose(_shield_rate(rollout(intervened, None)), [0.75, 0.75])
    np.testing.assert_allclose(_shield_rate(rollout(intervened[:, 0], None)), 0.75)


def test_a_parameterized_learner_is_told_how_often_its_shield_intervened():
    # A fall in 1.6 % of episodes is allowed, and 1.56 % is the least one can have: the shield has much to do.
    env = make("shielded_risk_ladder", bound=0.016)
    result = ParameterizedIPPO(SMALL, seed=1).train(env, 16 * 64 * 2)
    rates = [numbers["shield_rate"] for numbers in result.metrics["agent"]]
    assert len(rates) == 2 and all(0.5 < rate <= 1 for rate in rates)
    action = result.policies["agent"].act(np.eye(11, dtype=np.float32)[0])
    assert env.agents["agent"].action_space.contains(action)


RATED = {"num_envs": 2, "rollout_length": 20, "learning_epochs": 1, "network": {"hidden_sizes": (4,)}}


class Climb(ShieldedParallelEnv):
    """Remembers what its infos told."""

    def __init__(self, told):
        shields = make("shielded_risk_ladder", bound=0.016).shields
        super().__init__(to_parallel_env(make("risk_ladder")), shields, rung_of)
        self._told = told

    def step(self, actions):
        returned = super().step(actions)
        self._told.extend(info["shield_intervened"] for info in returned[4].values())
        return returned


def rung_of(source, observation, agent):
    return jnp.argmax(observation[:10])


def test_on_the_host_metrics_tell_as_much_as_compiled_ones():
    told = []

    result = ParameterizedIPPO(RATED, seed=1).train(lambda: Climb(told), 80)
    rates = [numbers["shield_rate"] for numbers in result.metrics["agent"]]
    assert len(told) == 80 and 0 < np.mean(told)
    np.testing.assert_allclose(rates, [np.mean(told[:40]), np.mean(told[40:])], rtol=1e-6)


def test_a_compiled_shielded_task_tells_as_much_through_its_host_face():
    env = make("shielded_risk_ladder", bound=0.016)
    results = [ParameterizedIPPO(RATED, seed=1).train(one, 80) for one in (env, lambda: to_parallel_env(env))]
    for result in results:
        rates = [numbers["shield_rate"] for numbers in result.metrics["agent"]]
        assert len(rates) == 2 and all(0.5 < rate <= 1 for rate in rates)


def test_without_shields_nothing_is_said_of_them():
    plain = IPPO(RATED, seed=1).train(lambda: to_parallel_env(make("coupled_budget")), 40)
    assert not any("shield_rate" in numbers for numbers in plain.metrics["agent_0"])


@pytest.mark.slow
def test_robots_that_learn_to_cross_never_collide_and_say_how_much_they_lean_on_their_shields():
    learner = ParameterizedIPPO({**SMALL, "share_parameters": True}, seed=0)
    result = learner.train(make("shielded_crossing", num_agents=3), 16 * 64 * 8)
    assert len(result.history) > 50
    assert all(cost == 0 for episode in result.history for cost in episode["agent_costs"].values())
    rates = np.array([[n["shield_rate"] for n in result.metrics[f"agent_{i}"]] for i in range(3)])
    assert rates.shape == (3, 8) and (rates > 0).all() and (rates < 1).all()
