"""One environment through both drivers, and groups of agents against agents on their own."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage import envs
from dressage.learning import scan_driver
from dressage.learning.groups import Group
from dressage.learning.host_driver import HostRun
from dressage.learning.host_env import FunctionalHostEnv
from dressage.learning.records import Experience, Observed, Outcome
from dressage.learning.runs import CompiledRun
from tests.learning.tiny import CONTINUOUS, Cycle, group_of_one, learner, single

STEPS, COPIES = 4, 3


def assert_close(ours, theirs, tolerance=1e-5):
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(mine, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("name", "options", "switches"),
    [
        (
            "pendulum",
            {"max_steps": 6},
            {"normalize_observations": True, "normalize_rewards": True, "anneal": True},
        ),
        pytest.param("cartpole", {"max_steps": 9}, {}, marks=pytest.mark.slow),
    ],
)
def test_both_drivers_give_the_same_agents_metrics_and_episodes(name, options, switches):
    env = single(envs.make(name, **options), COPIES)
    groups = group_of_one(learner(env.spec, **switches))
    compiled = CompiledRun(env, groups, STEPS, (3,), None, env._vector.max_steps)
    host = HostRun(lambda copies: FunctionalHostEnv(env), groups, STEPS, 3, COPIES, 0, None)
    ours, our_metrics = compiled.advance(compiled.init(), 5)
    theirs, their_metrics = host.advance(host.init(), 5)
    assert_close(ours.agents, theirs.agents)
    assert_close(ours.observed, theirs.observed, 1e-4)
    np.testing.assert_array_equal(jax.random.key_data(ours.key), jax.random.key_data(theirs.key))
    assert int(ours.updates) == int(theirs.updates) == 5
    assert our_metrics.keys() == their_metrics.keys()
    assert our_metrics["train/episodes"] >= COPIES
    for metric, value in our_metrics.items():
        np.testing.assert_allclose(value, their_metrics[metric], rtol=1e-3, atol=1e-5, err_msg=metric)


def random_experience(one, agents):
    """A rollout of a group, `[T, A, B]`."""
    generator = np.random.default_rng(0)
    shape = (STEPS, agents, COPIES)
    features, final = generator.normal(size=(2, *shape, one.head.spec.obs_dim)).astype(np.float32)
    outputs = generator.normal(size=(*shape, 2)).astype(np.float32)
    actions = outputs + generator.normal(size=outputs.shape).astype(np.float32)
    rewards = generator.normal(size=shape).astype(np.float32)
    ends = generator.random(shape) < 0.2
    outcome = Outcome(None, final, rewards, ends & (rewards > 0), ends, rewards, ends.astype(np.int32))
    return Experience(Observed(features), (outputs, np.zeros_like(outputs)), actions, outcome)


@pytest.fixture(scope="module")
def pair():
    """A learner, a group of two agents that it trains, and the group's state."""
    one = learner(CONTINUOUS, normalize_observations=True, normalize_rewards=True)
    group = Group(one, ("left", "right"))
    return one, group, jax.jit(Group.init, static_argnums=2)(group, jax.random.key(5), COPIES)


def agent_of(tree, index, axis=0):
    return jax.tree.map(lambda leaf: jnp.take(leaf, index, axis), tree)


def test_agents_of_a_group_start_as_they_would_alone_and_differ(pair):
    one, _, state = pair
    alone = jax.jit(type(one).init, static_argnums=2)
    for index, key in enumerate(jax.random.split(jax.random.key(5), 2)):
        assert_close(agent_of(state, index), alone(one, key, COPIES), 1e-6)
    kernels = state.params["params"]["actor"]["Dense_0"]["kernel"]
    assert np.abs(kernels[0] - kernels[1]).max() > 0.1


def test_a_group_of_two_learns_like_two_single_agents(pair):
    one, group, state = pair
    experience = random_experience(one, 2)
    key = jax.random.key(8)
    after, metrics = jax.jit(Group.learn)(group, state, experience, key)
    assert metrics["loss"].shape == (2,)
    learn = jax.jit(type(one).learn)
    for index, agent_key in enumerate(jax.random.split(key, 2)):
        rows = agent_of(experience, index, 1)
        alone, alone_metrics = learn(one, agent_of(state, index), rows, agent_key)
        assert_close(agent_of(after, index), alone)
        assert_close(agent_of(metrics, index), alone_metrics)
        moved = np.abs(alone.params["params"]["critic"]["Dense_0"]["kernel"] - kernel_of(state, index))
        assert moved.max() > 1e-3


def kernel_of(state, index):
    return np.asarray(state.params["params"]["critic"]["Dense_0"]["kernel"][index])


def test_a_group_of_two_acts_like_two_single_agents(pair):
    one, group, state = pair
    noise = group.draw_noise(jax.random.key(1), STEPS, COPIES)
    assert noise.shape == (STEPS, 2, COPIES, 2)
    observed = Observed(jnp.asarray(random_experience(one, 2).observed.features[0]))
    _, outputs, actions = jax.jit(Group.act)(group, state, observed, noise[0])
    alone = Group(one, ("left",))
    for index in range(2):
        row = alone.act(agent_of(state, index), agent_of(observed, index), noise[0, index])
        assert_close((outputs[0][index], outputs[1][index], actions[index]), (*row[1], row[2]))
    taken = group.environment_actions(actions)
    assert taken.shape == (2, COPIES, 2)
    assert np.abs(taken).max() <= 1


class PairEnv:
    """Two unlike environments stepped side by side, each with a group of its own."""

    def __init__(self, *parts):
        self.parts, self.copies = parts, parts[0].copies

    def reset(self, key):
        rows = [part.reset(one) for part, one in zip(self.parts, jax.random.split(key, 2), strict=True)]
        return tuple(state for state, _ in rows), tuple(observed for _, (observed,) in rows)

    def step(self, state, actions):
        triples = zip(self.parts, state, actions, strict=True)
        rows = [part.step(own, (action,)) for part, own, action in triples]
        return tuple(after for after, _ in rows), tuple(outcome for _, (outcome,) in rows)


@pytest.mark.slow
def test_groups_of_unlike_agents_side_by_side_learn_as_each_would_alone():
    env = PairEnv(single(envs.make("pendulum", max_steps=5), COPIES), single(Cycle(), COPIES))
    groups = tuple(
        Group(learner(part.spec, hidden=(width,)), (name,))
        for part, width, name in zip(env.parts, (5, 3), ("rod", "walker"), strict=True)
    )
    state = jax.jit(partial(scan_driver.init, env, groups))(jax.random.key(0))
    after, metrics, _ = jax.jit(partial(scan_driver.update, env, groups, STEPS))(state)
    _, noise_keys, shuffle_keys = scan_driver.update_keys(state.key, 2)
    noise = scan_driver.draw_noise(groups, noise_keys, STEPS, COPIES)
    for index, part in enumerate(env.parts):

        @jax.jit
        def alone(state, noise, keys, part=part, index=index):
            group = (groups[index],)
            _, _, rollouts = scan_driver.collect(part, group, state, noise)
            return scan_driver.learn(group, state.agents, rollouts, keys, state.fault)

        one = state.replace(
            agents=(state.agents[index],),
            environment=state.environment[index],
            observed=(state.observed[index],),
        )
        (agent,), (own,) = alone(one, (noise[index],), shuffle_keys[index : index + 1])
        assert_close(after.agents[index], agent)
        assert_close(metrics[index], own, 1e-4)
