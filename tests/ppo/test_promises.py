"""What the field often gets wrong and this PPO promises not to."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dressage.learning.policy_head import PolicyHead
from dressage.learning.specs import AgentSpec
from dressage.ppo import Config, make_trainer, train
from tests.envs.toys import Diary
from tests.ppo.small_tasks import SMALL, Still, assert_same_bits, collect, experience_of, flat

FRESH = SMALL | {"FIXED_INIT": False, "NUM_EVAL_ENVS": 0}


@pytest.fixture(scope="module")
def rollout(diary):
    return collect(diary, Config(**FRESH), steps=24)[2]


@pytest.fixture(scope="module")
def chunked(diary):
    """A trainer with normalised observations and a state after 2 updates."""
    trainer = make_trainer(diary, Config(**FRESH | {"NORMALIZE_ENV": True, "NUM_EVAL_ENVS": 3}))
    return trainer, trainer.advance(trainer.init(), 2)[0]


def test_the_final_observation_is_of_the_episode_that_the_step_belongs_to(rollout):
    seen, final = rollout.observed.features, rollout.outcome.final_features
    np.testing.assert_array_equal(final[..., 0], seen[..., 0])
    np.testing.assert_array_equal(final[..., 1], seen[..., 1] + 1)
    np.testing.assert_allclose(final[..., 2], np.tanh(rollout.actions[..., 0]), atol=1e-6)


def test_the_next_row_goes_on_from_the_final_observation_or_from_a_reset(rollout):
    following, final = rollout.observed.features[1:], rollout.outcome.final_features[:-1]
    ended = rollout.outcome.episode_ends[:-1]
    assert 10 < ended.sum() < ended.size / 2
    np.testing.assert_array_equal(following[~ended], final[~ended])
    np.testing.assert_array_equal(following[ended][:, 1:], 0)
    assert np.all(following[ended][:, 0] != final[ended][:, 0])


def test_episodes_end_by_termination_truncation_and_time_limit_and_only_the_first_is_terminal(rollout):
    identities, steps = rollout.observed.features[..., 0], rollout.observed.features[..., 1] + 1
    over = steps >= 3 + np.floor(identities * 4)
    cut = np.floor(identities * 100) % 2 == 1
    np.testing.assert_array_equal(rollout.outcome.terminated, over & ~cut)
    np.testing.assert_array_equal(rollout.outcome.episode_ends, over | (steps == 5))
    kinds = [over & ~cut, over & cut & (steps < 5), (steps == 5) & ~over]
    assert all(kind.any() for kind in kinds)


def test_a_time_limit_bootstraps_from_the_final_observation_within_a_rollout(diary):
    config = Config(**FRESH | {"GAMMA": 0.9, "GAE_LAMBDA": 0.0})
    session, agent, rollout = collect(diary, config, steps=24)
    learner, outcome = session.groups[0].learner, rollout.outcome
    batch, _ = learner.prepare(agent, experience_of(rollout))
    returns = np.reshape(batch.returns, outcome.rewards.shape)
    behind = np.asarray(learner.network.apply(agent.params, outcome.final_features, method="value"))
    limit = outcome.episode_ends & ~outcome.terminated
    np.testing.assert_allclose(returns[limit], (outcome.rewards + 0.9 * behind)[limit], rtol=1e-5)
    np.testing.assert_allclose(returns[outcome.terminated], outcome.rewards[outcome.terminated], rtol=1e-5)


def converged_value(env, changes):
    """Let the critic alone learn constant rewards of 1 at a discount of 0.9."""
    config = Config(
        **SMALL
        | {"NUM_STEPS": 16, "TOTAL_TIMESTEPS": 64 * 400, "GAMMA": 0.9, "UPDATE_EPOCHS": 4, "LR": 5e-3}
        | {"NUM_EVAL_ENVS": 0, "EVAL_FREQ": 1, "ANNEAL_LR": True, "CLIP_EPS": 1.0}
        | changes
    )
    policy = jax.jit(train, static_argnums=0)(env, config, jax.random.key(0)).policy
    return float(policy.value(np.ones(2)))


@pytest.mark.slow
@pytest.mark.parametrize("fixed", [True, False])
def test_the_critic_learns_the_endless_sum_where_only_the_time_limit_ends_episodes(fixed):
    assert converged_value(Still(max_steps=5), {"FIXED_INIT": fixed}) == pytest.approx(10, abs=0.3)


@pytest.mark.slow
def test_the_critic_learns_the_finite_sum_where_episodes_terminate():
    # Steps 1 to 5 look alike, so that the value is the mean of the sums over 5, 4, ... 1 rewards.
    sums = [(1 - 0.9**left) / 0.1 for left in (5, 4, 3, 2, 1)]
    value = converged_value(Still(max_steps=50, ends_at=5), {"GAE_LAMBDA": 1.0, "NUM_STEPS": 20})
    assert value == pytest.approx(np.mean(sums), abs=0.15)


def test_evaluation_leaves_state_and_statistics_bit_identical(chunked):
    trainer, state = chunked
    before = jax.tree.map(lambda leaf: leaf.copy(), state)
    first, second = trainer.evaluate(state), trainer.evaluate(state)
    assert_same_bits(state, before)
    assert_same_bits(first, second)
    assert float(state.agents[0].observation_moments.count) == 64


def test_stored_log_probabilities_are_of_the_action_before_squashing(diary):
    for squash in (True, False):
        session, agent, rollout = collect(diary, Config(**FRESH | {"SQUASH": squash}))
        learner = session.groups[0].learner
        batch, _ = learner.prepare(agent, experience_of(rollout))
        mean, log_std = rollout.policy_outputs
        expected = stats.norm.logpdf(rollout.actions, mean, np.exp(log_std)).sum(-1)
        np.testing.assert_allclose(
            np.reshape(batch.log_probs, expected.shape), expected, rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("normalize", [False, True])
def test_the_update_starts_at_a_ratio_of_1(chunked, diary, normalize):
    session, agent, rollout = collect(diary, Config(**FRESH | {"NORMALIZE_ENV": normalize}))
    if normalize:
        agent = chunked[1].agents[0]
    learner = session.groups[0].learner
    outputs = learner.step_policy(agent, rollout.observed)[1]
    experience = experience_of(rollout).replace(policy_outputs=outputs)
    batch, _ = learner.prepare(agent, experience)
    _, metrics = learner._loss(agent.params, batch, None, None)
    assert float(metrics["approx_kl"]) == pytest.approx(0, abs=1e-9)
    assert float(metrics["clip_fraction"]) == 0
    assert float(metrics["policy_loss"]) == pytest.approx(
        0, abs=1e-5
    )  # minus the mean of normalised advantages


def test_a_clipped_action_keeps_the_density_of_the_raw_one():
    spec = AgentSpec("a", 1, 2, "continuous", (), (2,), (), 2, (-1.0, -1.0), (1.0, 1.0))
    head = PolicyHead(spec, squash=False)
    action, deviation = jnp.array([1.7, -0.2]), jnp.log(jnp.array([0.5, 0.3]))
    np.testing.assert_allclose(head.environment_action(action), [1.0, -0.2], rtol=1e-6)
    old = head.distribution((jnp.array([0.9, 0.1]), deviation)).log_prob(action)
    new = head.distribution((jnp.array([1.1, 0.1]), deviation)).log_prob(action)
    assert float(old) == pytest.approx(-1.7207571, rel=1e-6)
    assert float(jnp.exp(new - old)) == pytest.approx(1.7506725, rel=1e-5)


def test_a_squashed_action_keeps_the_density_of_the_unsquashed_one_however_large():
    spec = AgentSpec("a", 1, 1, "continuous", (), (1,), (), 1, (-2.0,), (6.0,))
    head = PolicyHead(spec, squash=True)
    np.testing.assert_allclose(head.environment_action(jnp.array([1.2])), [5.3346184], rtol=1e-6)
    np.testing.assert_allclose(head.environment_action(jnp.array([[100.0], [-50.0]])), [[6.0], [-2.0]])
    one = head.distribution((jnp.array([0.3]), jnp.log(jnp.array([0.5]))))
    assert float(one.log_prob(jnp.array([1.2]))) == pytest.approx(stats.norm.logpdf(1.2, 0.3, 0.5), rel=1e-5)
    unit = head.distribution((jnp.zeros(1), jnp.zeros(1)))
    assert float(unit.log_prob(jnp.array([100.0]))) == pytest.approx(-5000.9189385, rel=1e-6)


def test_policies_statistics_and_optimiser_count_go_on_where_the_run_does(chunked):
    trainer, state = chunked
    kept = flat(state.agents[0].observation_moments.mean)
    later, _ = trainer.advance(jax.tree.map(lambda leaf: leaf.copy(), state), 1)
    assert float(later.agents[0].observation_moments.count) == 96
    assert int(later.agents[0].optimizer_steps) == 3 * 2 * 3
    assert np.any(flat(later.agents[0].observation_moments.mean) != kept)


def test_a_diary_of_another_length_is_cut_where_its_limit_says():
    _, _, rollout = collect(Diary(max_steps=2), Config(**FRESH), steps=6)
    np.testing.assert_array_equal(rollout.outcome.episode_ends, [[False] * 4, [True] * 4] * 3)
    assert not rollout.outcome.terminated.any()
