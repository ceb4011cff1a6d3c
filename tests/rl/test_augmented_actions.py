"""ParameterizedIPPO: the whole action kept from rollout to saved adapter, and a known optimum found."""

from dataclasses import dataclass

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from dressage import envs
from dressage.envs import MultiAgentEnv
from dressage.envs.spaces import Box
from dressage.equations.distributions import AugmentedAction
from dressage.errors import UnsupportedSpaceError
from dressage.rl.parameterized_ippo import ParameterizedIPPO, ParameterizedPolicyAdapter
from dressage.rl.results import TrainResult
from tests.rl.rl_toys import SMALL, Script

BEST = 0.3
"""The threshold at which freedom stops paying: where `t - t**2 / (2 * BEST)` is greatest."""


@dataclass(frozen=True)
class Threshold(MultiAgentEnv):
    """Choose a road and how much risk the shield on it lets pass: `t = sigmoid(z)`.

    On road 3 a step pays what passes, `t`, less the harm, `t**2 / (2 BEST)`: best at `t = BEST`. Road 2 pays
    -1 whatever is let pass.
    """

    max_steps: int = 4
    possible_agents: tuple[str, ...] = ("rider",)

    def reset(self, rng):
        return jnp.zeros(()), {"rider": jnp.ones(1)}, {"rider": {}}

    def step(self, state, actions):
        road, raw = actions["rider"]["road"], actions["rider"]["level"][0]
        passed = jax.nn.sigmoid(raw)
        reward = jnp.where(road == 3, passed - passed**2 / (2 * BEST), -1.0)
        no = {"rider": jnp.asarray(False)}
        return state, {"rider": jnp.ones(1)}, {"rider": reward}, no, no, {"rider": {"sent": raw}}

    def observation_space(self, state, agent):
        return Box(0.0, 1.0, (1,))

    def action_space(self, state, agent):
        return spaces.Dict(level=spaces.Box(-np.inf, np.inf, (1,)), road=spaces.Discrete(2, start=2))


SEEN = np.ones(1, np.float32)


@pytest.fixture(scope="module")
def trained():
    return ParameterizedIPPO(SMALL).train(Threshold(), 16)


def test_the_saved_adapter_gives_the_whole_action_in_order_and_dtype_of_training(trained, tmp_path):
    policy = trained.policies["rider"]
    assert isinstance(policy, ParameterizedPolicyAdapter)
    trained.save(tmp_path)
    again = TrainResult.load(tmp_path).policies["rider"]
    assert isinstance(again, ParameterizedPolicyAdapter)
    for rng in (None, jax.random.key(1)):
        action, other = policy.act(SEEN, rng=rng), again.act(SEEN, rng=rng)
        assert policy.action_space.contains(action)
        assert list(action) == list(policy.action_space.spaces) == ["level", "road"]
        np.testing.assert_array_equal(action["level"], other["level"])
        assert action["road"] == other["road"] and action["road"] in (2, 3)
        assert action["level"].dtype == np.float32


def test_log_probability_and_entropy_are_the_exact_sums_over_both_parts(trained):
    policy = trained.policies["rider"]
    mean, spread = policy.parameters(SEEN)
    probabilities = policy.component_action_probs(SEEN)[0]
    raw = np.array([1.5], np.float32)
    density = -0.5 * ((raw - mean) / spread) ** 2 - np.log(spread) - 0.5 * np.log(2 * np.pi)
    expected = np.log(probabilities[1]) + density.sum()
    np.testing.assert_allclose(policy.log_prob(SEEN, (np.array([1]), raw)), expected, rtol=1e-5)
    choice = -(probabilities * np.log(probabilities)).sum()
    entropy = choice + (np.log(spread) + 0.5 * np.log(2 * np.pi * np.e)).sum()
    distribution = AugmentedAction(np.log(probabilities), (2,), mean, np.log(spread))
    np.testing.assert_allclose(distribution.entropy(), entropy, rtol=1e-5)


def test_the_raw_parameter_is_what_the_environment_gets_and_what_is_learned_from():
    class Taking(Script):
        def step(self, actions):
            assert all(self.action_spaces[agent].contains(action) for agent, action in actions.items())
            return super().step(actions)

    hybrid = spaces.Tuple((spaces.MultiDiscrete([2, 3]), spaces.Box(-np.inf, np.inf, (2,))))
    env = Taking([{"agents": "ab"}] * 9, action_spaces={"a": hybrid, "b": hybrid})
    learner = ParameterizedIPPO({**SMALL, "num_envs": 1, "learning_epochs": 1, "mini_batches": 1})
    prepared = learner.prepare(env)
    collector = prepared.make_run(learner.make_groups(prepared, 0), (0,))._collector
    env.sent.clear()
    records = collector.collect(collector.init(0), 4).records[0]
    indices, raw = (np.asarray(part) for part in records.actions)
    for step, sent in enumerate(env.sent):
        for row, agent in enumerate("ab"):
            np.testing.assert_array_equal(sent[agent][0], indices[step, row, 0])
            np.testing.assert_array_equal(sent[agent][1], raw[step, row, 0])
            assert (sent[agent][0].dtype, sent[agent][1].dtype) == (np.int64, np.float32)
    # One minibatch of one pass: the ratio is 1 only if the density is that of the action that was stored.
    row = learner.train(env, 4).metrics["a"][0]
    assert abs(row["approx_kl"]) < 1e-6 and row["clip_fraction"] == 0


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Discrete(2), "ParameterizedIPPO needs a Dict or Tuple of discrete components and unbounded"),
        (spaces.Box(-1, 1, (2,)), "For plain actions use IPPO"),
        (
            spaces.Dict(road=spaces.Discrete(2), level=spaces.Box(-1, 1, (1,))),
            "has bounded parameters, Box.* give the Box the bounds -inf and inf",
        ),
    ],
)
def test_actions_without_choices_or_with_bounded_parameters_are_refused(space, words):
    env = Script([{"agents": "ab"}], action_spaces=dict.fromkeys("ab", space))
    with pytest.raises(UnsupportedSpaceError, match=words):
        ParameterizedIPPO({**SMALL, "num_envs": 1}).train(env, 4)


def test_both_drivers_learn_the_same_augmented_actions(trained):
    host = ParameterizedIPPO(SMALL).train(lambda: envs.to_parallel_env(Threshold()), 16)
    for ours, theirs in zip(
        jax.tree.leaves(host.agent_states), jax.tree.leaves(trained.agent_states), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_known_optimum_of_the_parameter_is_found(seed):
    options = {
        "num_envs": 16,
        "rollout_length": 16,
        "learning_rate": 5e-3,
        "anneal_learning_rate": True,
        "gamma": 0.0,
        "entropy_coef": 0.0,
        "network": {"hidden_sizes": (8,)},
    }
    result = ParameterizedIPPO(options, seed=seed).train(Threshold(), 16 * 16 * 300)
    policy = result.policies["rider"]
    action = policy.act(SEEN)
    assert action["road"] == 3
    threshold = float(jax.nn.sigmoid(action["level"][0]))
    assert threshold == pytest.approx(BEST, rel=0.05)
    assert isinstance(policy.action_space, gymnasium.spaces.Dict)
