"""The suite's environments with costs: rules by hand, known probabilities, contract, host face, pictures."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.envs import (
    MultiAgentVectorEnv,
    VectorEnv,
    check_environment,
    check_multi_agent_environment,
    make,
    render,
    to_parallel_env,
)
from dressage.envs.suite.crossing import CrossingState
from dressage.envs.suite.platoon import PlatoonState
from dressage.envs.suite.risk_ladder import LadderState
from dressage.envs.suite.shortcut_cmdp import ShortcutState
from dressage.envs.wrappers import as_multi_agent
from dressage.errors import ConfigError

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # PettingZoo's tests import its own old names
    from pettingzoo.test import parallel_api_test

KEY = jax.random.key(0)


@pytest.mark.parametrize(
    "env",
    [
        make("shortcut_cmdp", slip=0.1),
        make("risk_ladder"),
        make("crossing"),
        make("crossing", continuous=False, num_agents=2),
        make("platoon"),
        make("platoon", continuous=False, num_agents=1),
    ],
    ids=repr,
)
def test_a_task_keeps_its_contract_and_its_face_passes_pettingzoos_test(env):
    check_multi_agent_environment(as_multi_agent(env))
    parallel_api_test(to_parallel_env(env), num_cycles=60)


UP, RIGHT, DOWN, LEFT = range(4)


@pytest.mark.parametrize(
    ("cell", "move", "reached", "reward", "cost", "ends"),
    [
        (8, RIGHT, 9, -1, 1, False),  # into the first hazard
        (9, DOWN, 9, -1, 1, False),  # bounces off the wall inside it, and pays again
        (10, UP, 6, -1, 0, False),
        (10, RIGHT, 11, 10, 0, True),
        (7, DOWN, 11, 10, 0, True),
        (8, LEFT, 8, -1, 0, False),
        (3, UP, 3, -1, 0, False),
        (4, LEFT, 4, -1, 0, False),  # rows do not join at their ends
    ],
)
def test_a_move_in_the_shortcut_leads_where_the_grid_says(cell, move, reached, reward, cost, ends):
    env = make("shortcut_cmdp")
    state, seen, earned, terminated, truncated, info = env.step(ShortcutState(jnp.int32(cell), KEY), move)
    assert int(state.cell) == int(jnp.argmax(seen)) == reached
    assert (float(earned), float(info["cost"])) == (reward, cost)
    assert bool(terminated) is ends and not truncated


def frequencies(values, number):
    return np.bincount(np.asarray(values), minlength=number) / len(values)


def test_a_slip_leads_to_each_side_as_often_as_the_model_says():
    env, draws = make("shortcut_cmdp", slip=0.15), 20_000
    keys = jax.random.split(KEY, draws)
    step = jax.jit(jax.vmap(lambda key, move: env.step(ShortcutState(jnp.int32(5), key), move)[0].cell))
    for move in range(4):
        expected = env.landings()[5, move]
        seen = frequencies(step(keys, jnp.full(draws, move)), 12)
        assert np.all(np.abs(seen - expected) <= 5 * np.sqrt(expected * (1 - expected) / draws))
    assert env.landings()[5, UP].nonzero()[0].tolist() == [1, 4, 6]
    np.testing.assert_allclose(env.landings()[5, UP][[1, 4, 6]], [0.7, 0.15, 0.15])


def test_fixed_starts_still_draw_slips_of_their_own():
    vector = VectorEnv(make("shortcut_cmdp", slip=0.3, max_steps=4), 1, fixed_init=True)
    state, _ = vector.reset(KEY)
    _, steps = jax.lax.scan(vector.step, state, jnp.full((40, 1), UP))
    cells = np.asarray(steps.final_observation[:, 0].argmax(-1)).reshape(10, 4)
    assert len({tuple(row) for row in cells.tolist()}) > 1


def test_a_ladders_risks_are_those_of_its_description():
    env = make("risk_ladder")
    np.testing.assert_allclose(env.falls()[5], 0.05 * 1.5 * np.array([0.02, 0.2, 1.0]))
    assert env.falls()[-1].tolist() == [0, 0, 0]
    np.testing.assert_allclose(env.climbs().sum(-1), 1.0)
    assert env.climbs()[7, 2].nonzero()[0].tolist() == [9]
    np.testing.assert_allclose(env.climbs()[4, 1, [5, 6]], [0.2, 0.8])


def test_a_climb_falls_and_gains_as_often_as_the_tables_say():
    env, draws = make("risk_ladder", risk=0.4), 20_000
    keys = jax.random.split(KEY, draws)
    step = jax.jit(jax.vmap(lambda key, pace: env.step(LadderState(jnp.int32(5), key), pace)))
    for pace in range(3):
        state, _, rewards, ended, _, info = step(keys, jnp.full(draws, pace))
        fell = np.asarray(info["cost"]) == 1
        risk = env.falls()[5, pace]
        assert abs(fell.mean() - risk) < 5 * np.sqrt(risk * (1 - risk) / draws)
        climbed = np.asarray(state.rung)[~fell]
        expected = env.climbs()[5, pace]
        error = 5 * np.sqrt(expected * (1 - expected) / len(climbed))
        assert np.all(np.abs(frequencies(climbed, 10) - expected) <= error)
        assert np.all(np.asarray(ended) == fell) and np.all(np.asarray(rewards) == -1)
    top = step(keys, jnp.full(draws, 2))[0].rung.max()
    assert int(top) == 8


def test_the_top_of_the_ladder_ends_the_climb_with_its_reward():
    env = make("risk_ladder", risk=0.0)
    state, seen, reward, ended, _, info = env.step(LadderState(jnp.int32(7), KEY), 2)
    assert int(state.rung) == 9 and int(jnp.argmax(seen)) == 9
    assert (float(reward), bool(ended), float(info["cost"])) == (10, True, 0)


def test_robots_accelerate_are_rewarded_and_collide_as_the_equations_say():
    env = make("crossing", num_agents=3)
    state = CrossingState(
        jnp.array([[0.0, 0.0], [0.3, 0.0], [0.0, 1.0]]),
        jnp.array([[0.5, 0.0], [0.0, 0.0], [0.0, 0.0]]),
        jnp.array([[1.0, 0.0], [0.3, 0.05], [0.0, 1.0]]),
    )
    # The first one asks for more than it has.
    actions = {"agent_0": jnp.array([4.0, 0.0]), "agent_1": jnp.zeros(2), "agent_2": jnp.array([0.0, -0.5])}
    state, seen, rewards, terminated, truncated, infos = env.step(state, actions)
    np.testing.assert_allclose(state.velocity, [[0.6, 0], [0, 0], [0, -0.05]], atol=1e-6)
    np.testing.assert_allclose(state.position, [[0.06, 0], [0.3, 0], [0, 0.995]], atol=1e-6)
    # 0.06 nearer, not there yet, full effort; at the goal; 0.005 away of the goal.
    expected = [0.06 - 0.05 - 0.01, 0.0, -0.005 - 0.0025]
    np.testing.assert_allclose([float(rewards[a]) for a in env.possible_agents], expected, atol=1e-6)
    # 0.24 apart is not yet nearer than two radii.
    assert [float(infos[a]["cost"]) for a in env.possible_agents] == [0, 0, 0]
    infos = env.step(state, actions)[5]
    assert [float(infos[a]["cost"]) for a in env.possible_agents] == [1, 1, 0]
    np.testing.assert_allclose(
        seen["agent_1"], [0, 0, 0, 0.05, -0.24, 0, 0.6, 0, -0.3, 0.995, 0, -0.05], atol=1e-6
    )
    assert not any(map(bool, [*terminated.values(), *truncated.values()]))


def test_a_discrete_robot_chooses_among_nine_pushes():
    env = make("crossing", num_agents=2, continuous=False)
    state, _, _ = env.reset(KEY)
    following = env.step(state, {"agent_0": 0, "agent_1": 4})[0]
    np.testing.assert_allclose(following.velocity, [[0, 0], [-0.0707107, 0.0707107]], atol=1e-6)


@pytest.mark.parametrize(("number", "circle"), [(4, 1.5), (8, 1.0), (2, 0.2)])
def test_robots_start_apart_at_rest_opposite_to_their_goals(number, circle):
    env = make("crossing", num_agents=number, circle=circle)
    state, _, infos = jax.jit(jax.vmap(env.reset))(jax.random.split(KEY, 500))
    assert all(not np.any(info["cost"]) for info in infos.values())
    assert not np.any(state.velocity)
    np.testing.assert_allclose(np.linalg.norm(state.position, axis=-1), circle, rtol=1e-5)
    np.testing.assert_array_equal(state.goal, -state.position)


def test_a_circle_without_room_is_refused():
    with pytest.raises(
        ConfigError, match="no room for 12 robots on a circle of 0.3 m; give circle more than 0.65"
    ):
        make("crossing", num_agents=12, circle=0.3)


def test_cars_brake_drive_and_pay_as_the_equations_say():
    env = make("platoon", num_agents=2)
    state = PlatoonState(
        jnp.array([10.0, 1.95]), jnp.array([10.0, 0.2, 29.9]), jnp.zeros(3), jnp.float32(10.0), KEY
    )
    actions = {"agent_0": jnp.array([-9.0]), "agent_1": jnp.array([3.0])}
    state, seen, rewards, _, _, infos = env.step(state, actions)
    # Nobody drives backwards or faster than 30 m/s.
    np.testing.assert_allclose(state.velocity[1:], [0, 30], atol=1e-5)
    gap = 10 + 0.1 * float(state.velocity[0])
    np.testing.assert_allclose(state.gap, [gap, 1.95 - 3.0], atol=1e-5)
    assert [float(infos[a]["cost"]) for a in env.possible_agents] == [0, 1]
    np.testing.assert_allclose(float(rewards["agent_0"]), -(((gap - 4) / 10) ** 2) - 0.18, atol=1e-5)
    np.testing.assert_allclose(float(rewards["agent_1"]), -1 - 0.045, atol=1e-5)
    np.testing.assert_allclose(seen["agent_1"], [1, -1.05 / 30, 1, -1], atol=1e-5)


def test_the_leader_of_a_platoon_brakes_and_drives_no_harder_than_a_car_can():
    vector = MultiAgentVectorEnv(make("platoon", num_agents=1), 8)
    state, _ = vector.reset(KEY)
    coast = {"agent_0": jnp.zeros((8, 1))}
    step = jax.jit(lambda s: jax.lax.scan(lambda s, _: (vector.step(s, coast)[0], s.inner), s, length=150))
    inner = step(state)[1]
    change = np.diff(inner.velocity[..., 0], axis=0) / 0.1
    assert change.min() > -6.001 and change.max() < 3.001
    assert change.min() < -5.9 and change.max() > 2.9
    assert inner.velocity.min() >= 0 and inner.velocity.max() <= 30


def moved(env, action, steps):
    many = as_multi_agent(env)
    state, _, _ = many.reset(KEY)
    first = render(many, state)
    step = jax.jit(many.step)
    for _ in range(steps):
        state = step(state, dict.fromkeys(many.possible_agents, action))[0]
    return first, render(many, state)


@pytest.mark.parametrize(
    ("name", "action", "shape"),
    [
        ("shortcut_cmdp", UP, (320, 416, 3)),
        ("risk_ladder", 0, (352, 288, 3)),
        ("crossing", np.array([1.0, 0.5], np.float32), (352, 352, 3)),
        ("platoon", np.array([-6.0], np.float32), (144, 480, 3)),
    ],
)
def test_a_picture_shows_what_happened(name, action, shape):
    first, second = moved(make(name), action, 6)
    assert first.shape == second.shape == shape and first.dtype == np.uint8
    assert (first != second).any(axis=-1).mean() > 0.002


@pytest.mark.parametrize("name", ["shortcut_cmdp", "risk_ladder"])
def test_a_task_of_one_agent_keeps_the_contract_of_one(name):
    env = make(name)
    check_environment(env)
    assert env.redraws
