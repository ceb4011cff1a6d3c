"""safe_spread equals simple_spread_v3 of mpe2, step by step from shared states."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.envs import make
from dressage.envs.multi_agent import split_agents
from dressage.envs.suite.safe_spread import SpreadState

mpe2 = pytest.importorskip("mpe2")

CASES = [(3, 0.5, False), (3, 0.0, True), (2, 1.0, False), (5, 0.3, True)]
STATES = 40


def peer_of(number, local_ratio, continuous):
    from mpe2 import simple_spread_v3

    peer = simple_spread_v3.parallel_env(
        N=number, local_ratio=local_ratio, continuous_actions=continuous, max_cycles=25
    )
    peer.reset(seed=0)
    return peer


def world_of(peer):
    return peer.unwrapped.world


def put_into(peer, state):
    for agent, position, velocity in zip(world_of(peer).agents, *state[:2], strict=True):
        agent.state.p_pos, agent.state.p_vel = position.copy(), velocity.copy()
    for landmark, position in zip(world_of(peer).landmarks, state[2], strict=True):
        landmark.state.p_pos = position.copy()


def taken_from(peer):
    agents = world_of(peer).agents
    return np.array([a.state.p_pos for a in agents]), np.array([a.state.p_vel for a in agents])


def drawn_states(rng, number):
    # Crowded, so that about half of all states have agents in contact.
    positions = rng.uniform(-0.5, 0.5, (STATES, number, 2))
    velocities = rng.normal(0, 0.5, (STATES, number, 2))
    landmarks = rng.uniform(-1, 1, (STATES, number, 2))
    return positions, velocities, landmarks


def drawn_actions(rng, number, continuous):
    if continuous:
        return rng.uniform(-0.2, 1.2, (STATES, number, 5)).astype(np.float32)  # some out of bounds
    return rng.integers(0, 5, (STATES, number))


@pytest.fixture(scope="module", params=CASES, ids=str)
def stepped(request):
    """Both environments stepped once from each of many states."""
    number, local_ratio, continuous = request.param
    rng = np.random.default_rng(number)
    states, actions = drawn_states(rng, number), drawn_actions(rng, number, continuous)
    peer = peer_of(*request.param)
    rows = []
    for i in range(STATES):
        peer.reset(seed=0)
        put_into(peer, [part[i] for part in states])
        world = world_of(peer)
        given = dict(zip(peer.agents, np.clip(actions[i], 0, 1) if continuous else actions[i], strict=True))
        observed, rewards, *_ = peer.step(given)
        collisions = [
            sum(peer.unwrapped.scenario.is_collision(a, b) for b in world.agents if b is not a)
            for a in world.agents
        ]
        rows.append(
            (
                np.stack(list(observed.values())),
                np.array(list(rewards.values())),
                collisions,
                *taken_from(peer),
            )
        )
    env = make("safe_spread", num_agents=number, local_ratio=local_ratio, continuous=continuous)
    ours = SpreadState(*(jnp.asarray(part, jnp.float32) for part in states))
    by_agent = split_agents(jnp.moveaxis(jnp.asarray(actions), 1, 0), env.possible_agents)
    return (
        env,
        [np.stack(column) for column in zip(*rows, strict=True)],
        jax.jit(jax.vmap(env.step))(ours, by_agent),
    )


def stacked(by_agent, env):
    return np.stack([np.asarray(by_agent[agent]) for agent in env.possible_agents], axis=1)


def test_observations_rewards_and_motion_equal_mpe2(stepped):
    env, (observed, rewards, _, positions, velocities), (state, observations, got, *_) = stepped
    np.testing.assert_allclose(stacked(observations, env), observed, atol=1e-5)
    np.testing.assert_allclose(stacked(got, env), rewards, atol=1e-5)
    np.testing.assert_allclose(state.position, positions, atol=1e-5)
    np.testing.assert_allclose(state.velocity, velocities, rtol=1e-5, atol=1e-5)


def test_the_cost_counts_the_collisions_that_mpe2_sees(stepped):
    env, (_, _, collisions, _, _), (*_, infos) = stepped
    costs = stacked({agent: info["cost"] for agent, info in infos.items()}, env)
    np.testing.assert_array_equal(costs, collisions)
    assert 0.1 < (collisions > 0).mean() < 0.95


def test_nothing_but_the_time_limit_ends_an_episode(stepped):
    _, _, (_, _, _, terminated, truncated, _) = stepped
    assert not any(np.any(flag) for flag in itertools.chain(terminated.values(), truncated.values()))


def test_a_whole_episode_equals_mpe2_from_its_start_to_its_end():
    env, peer = make("safe_spread"), peer_of(3, 0.5, False)
    rng = np.random.default_rng(5)
    observed, _ = peer.reset(seed=4)
    world = world_of(peer)
    state = SpreadState(
        *(jnp.asarray(part, jnp.float32) for part in taken_from(peer)),
        jnp.asarray([landmark.state.p_pos for landmark in world.landmarks], jnp.float32),
    )
    step = jax.jit(env.step)
    for t in range(25):
        # Towards the middle at first, so that they meet.
        towards = {
            a: 1 + int(observed[a][2] < 0) if t % 2 else 3 + int(observed[a][3] < 0) for a in peer.agents
        }
        actions = towards if t < 12 else {a: int(rng.integers(5)) for a in peer.agents}
        observed, rewards, _, truncated, _ = peer.step(actions)
        state, got, got_rewards, _, _, _ = step(state, actions)
        for agent in env.possible_agents:
            np.testing.assert_allclose(got[agent], observed[agent], atol=1e-4)
            assert float(got_rewards[agent]) == pytest.approx(rewards[agent], abs=1e-4)
    assert all(truncated.values()) and env.max_steps == 25


@pytest.mark.parametrize("case", CASES, ids=str)
def test_agents_and_spaces_are_those_of_mpe2(case):
    number, local_ratio, continuous = case
    env = make("safe_spread", num_agents=number, local_ratio=local_ratio, continuous=continuous)
    peer = peer_of(*case)
    assert list(env.possible_agents) == peer.possible_agents
    for agent in env.possible_agents:
        assert env.observation_space(None, agent).to_gymnasium() == peer.observation_space(agent)
        assert env.action_space(None, agent).to_gymnasium() == peer.action_space(agent)


def test_an_episode_starts_at_rest_within_the_arena():
    state, observations, infos = jax.vmap(make("safe_spread").reset)(
        jax.random.split(jax.random.key(0), 2000)
    )
    positions = np.asarray(state.position).reshape(-1, 2)
    # Mean 0 and deviation 1/√3 of a uniform draw, within five standard errors.
    np.testing.assert_allclose(positions.mean(0), 0, atol=5 / np.sqrt(3 * 6000))
    np.testing.assert_allclose(positions.std(0), 1 / np.sqrt(3), atol=0.02)
    assert np.abs(positions).max() <= 1 and not np.any(state.velocity)
    np.testing.assert_array_equal(observations["agent_1"][:, 2:4], state.position[:, 1])
    # Two of three points are nearer than 0.3 with probability about π 0.3² / 4, less at the borders.
    assert 0.1 < np.asarray(infos["agent_0"]["cost"]).mean() < 2 * np.pi * 0.3**2 / 4


def test_two_agents_in_one_place_push_nobody():
    state = SpreadState(jnp.zeros((2, 2)), jnp.zeros((2, 2)), jnp.ones((2, 2)))
    after, _, rewards, *_ = make("safe_spread", num_agents=2).step(state, {"agent_0": 0, "agent_1": 2})
    np.testing.assert_allclose(after.velocity, [[0, 0], [0.5, 0]], atol=1e-7)
    # Both landmarks at distance √2, and one collision, each weighed by half.
    assert float(rewards["agent_0"]) == pytest.approx(-0.5 * 2 * np.sqrt(2) - 0.5, abs=1e-6)


def test_one_agent_alone_is_no_special_case():
    env = make("safe_spread", num_agents=1)
    state, observations, _ = env.reset(jax.random.key(0))
    assert observations["agent_0"].shape == (6,)
    _, _, rewards, _, _, infos = env.step(state, {"agent_0": 1})
    assert float(infos["agent_0"]["cost"]) == 0 and float(rewards["agent_0"]) < 0
