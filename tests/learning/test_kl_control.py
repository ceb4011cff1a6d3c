"""Divergence as a brake: the rest of an update left out, the learning rate moved; and networks shared."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.learning.groups import Group
from dressage.learning.proximal import ProximalLearner
from dressage.learning.records import Experience, Observed, Outcome
from tests.learning.tiny import DISCRETE, hyperparameters, learner

STEPS, AGENTS, COPIES, PARTS = 4, 2, 3, 6  # two epochs of three minibatches

learn = jax.jit(ProximalLearner.learn)
learn_group = jax.jit(Group.learn)


def with_kl(**limits):
    hyper = hyperparameters(learning_rate=0.05)
    return learner(DISCRETE, hyper=hyper.replace(**{name: jnp.float32(kl) for name, kl in limits.items()}))


def rollout(shape):
    generator = np.random.default_rng(1)
    features, finals = generator.normal(size=(2, *shape, 3)).astype(np.float32)
    rewards = generator.normal(size=shape).astype(np.float32)
    ends = generator.random(shape) < 0.2
    outcome = Outcome(None, finals, rewards, ends, ends, rewards, np.ones(shape, np.int32))
    actions = generator.integers(0, 4, shape).astype(np.int32)
    return Experience(Observed(features), (np.zeros((*shape, 4), np.float32), None), actions, outcome)


@pytest.fixture(scope="module")
def start():
    return with_kl().init(jax.random.key(0), COPIES)


@pytest.fixture(scope="module")
def unbraked(start, acted):
    return learn(with_kl(), start, acted, jax.random.key(1))


@pytest.fixture(scope="module")
def acted(start):
    """A rollout that the policy at the start made."""
    records = rollout((STEPS, COPIES))
    _, outputs = jax.jit(ProximalLearner.step_policy)(with_kl(), start, records.observed)
    return records.replace(policy_outputs=outputs)


def assert_same(ours, theirs):
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_array_equal(mine, other)


def test_a_divergence_beyond_the_target_leaves_out_the_rest_of_the_update(start, acted, unbraked):
    key = jax.random.key(1)
    after, metrics = learn(with_kl(target_kl=1e-6), start, acted, key)
    # The policy that acted has no divergence from itself, so the first minibatch is always applied.
    assert int(after.opt_state.count) == 1
    assert int(after.optimizer_steps) == PARTS  # The schedule goes on.
    assert float(metrics["skipped_minibatches"]) == pytest.approx((PARTS - 1) / PARTS)
    far, metrics = learn(with_kl(target_kl=1e9), start, acted, key)
    assert int(far.opt_state.count) == PARTS and float(metrics["skipped_minibatches"]) == 0
    for mine, other in zip(jax.tree.leaves(far.params), jax.tree.leaves(unbraked[0].params), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("target", "factor"), [(1e9, 1.5), (1e-9, 1 / 1.5)])
def test_the_learning_rate_moves_towards_the_wanted_divergence_for_the_next_update(start, target, factor):
    start = start.replace(learning_rate=jnp.float32(1e-3))
    one = with_kl(adaptive_kl=target)
    after, metrics = learn(one, start, rollout((STEPS, COPIES)), jax.random.key(1))
    assert float(metrics["learning_rate"]) == pytest.approx(1e-3)
    assert float(after.learning_rate) == pytest.approx(1e-3 * factor)
    _, later = learn(one, after, rollout((STEPS, COPIES)), jax.random.key(2))
    assert float(later["learning_rate"]) == pytest.approx(1e-3 * factor)


def test_agents_that_share_a_network_are_samples_of_one_learner(start):
    group = Group(with_kl(), ("left", "right"), shared=True)
    assert (group.stacked, group.metric_shape, group.batch_shape(COPIES)) == (False, (), (AGENTS, COPIES))
    records = rollout((STEPS, AGENTS, COPIES))
    merged = jax.tree.map(lambda leaf: leaf.reshape(STEPS, AGENTS * COPIES, *leaf.shape[3:]), records)
    ours, metrics = learn_group(group, start, records, jax.random.key(1))
    theirs, alone = learn(with_kl(), start, merged, jax.random.key(1))
    assert metrics["loss"].shape == ()
    for mine, other in zip(jax.tree.leaves((ours, metrics)), jax.tree.leaves((theirs, alone)), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)
    assert_same(group.agent_state(ours, 0), group.agent_state(ours, 1))
    memory = group.draw_noise(jax.random.key(0), STEPS, COPIES)
    assert jax.tree.leaves(memory)[0].shape[:3] == (STEPS, AGENTS, COPIES)
