"""The suite's environments of many agents: rules by hand, contract, host face, pictures."""

import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.envs import (
    MultiAgentVectorEnv,
    VectorEnv,
    can_render,
    check_environment,
    check_multi_agent_environment,
    make,
    render,
    to_parallel_env,
)
from dressage.envs.suite.corridor import CorridorState
from dressage.errors import ConfigError, EnvironmentContractError, UnsupportedSpaceError
from tests.envs.multi_agent_toys import Crowd

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # PettingZoo's tests import its own old names
    from pettingzoo.test import parallel_api_test

MANY = ["corridor", "coupled_budget", "safe_spread"]


@pytest.mark.parametrize("env", [*map(make, MANY), make("safe_spread", continuous=True), Crowd()], ids=repr)
def test_a_sound_environment_keeps_its_contract_and_its_face_passes_pettingzoos_test(env):
    check_multi_agent_environment(env)
    parallel_api_test(to_parallel_env(env), num_cycles=60)


@pytest.mark.parametrize(("first", "second"), list(itertools.product([0, 1], [0, 1, 2])))
def test_coupled_budget_pays_the_sum_and_charges_the_product(first, second):
    env = make("coupled_budget")
    state, observations, _ = env.reset(jax.random.key(0))
    assert observations["agent_1"].tolist() == [1] + [0] * 9
    _, observations, rewards, _, _, infos = env.step(state, {"agent_0": first, "agent_1": second})
    assert observations["agent_0"].tolist() == [0, 1] + [0] * 8
    for agent in env.possible_agents:
        assert float(rewards[agent]) == first + second / 2
        assert float(infos[agent]["cost"]) == first * second / 2


def test_budget_tasks_terminate_after_their_last_step():
    bandit = VectorEnv(make("budget_bandit"), 1)
    _, steps = jax.lax.scan(bandit.step, bandit.reset(jax.random.key(0))[0], jnp.ones((20, 1), jnp.int32))
    assert np.flatnonzero(steps.terminated[:, 0]).tolist() == [9, 19]
    assert float(steps.episode_return[9, 0]) == float(steps.info["cost"][:10].sum()) == 10
    coupled = MultiAgentVectorEnv(make("coupled_budget"), 1)
    actions = {"agent_0": jnp.ones((20, 1), jnp.int32), "agent_1": jnp.full((20, 1), 2)}
    _, steps = jax.lax.scan(coupled.step, coupled.reset(jax.random.key(0))[0], actions)
    assert np.flatnonzero(steps.groups[0].terminated[:, 0, 0]).tolist() == [9, 19]
    assert steps.groups[1].episode_return[9, 0].tolist() == [20]
    assert steps.groups[1].episode_cost[9, 0].tolist() == [10]


def test_a_budget_bandits_observations_lie_in_its_space_after_the_last_step_too():
    env = make("budget_bandit", max_steps=2)
    check_environment(env)
    state, observation, _ = env.reset(jax.random.key(0))
    seen = [observation]
    for _ in range(2):
        state, observation, *_ = env.step(state, 0)
        seen.append(observation)
    assert np.array(seen).tolist() == [[1, 0], [0, 1], [0, 0]]


def corridor_step(cells, inside, steps, actions, **options):
    env = make("corridor", num_agents=len(cells), **options)
    state = CorridorState(jnp.asarray(cells), jnp.asarray(inside), jnp.asarray(steps))
    given = dict(zip(env.possible_agents, actions, strict=True))
    following, observations, rewards, terminated, _, infos = jax.jit(env.step)(state, given)
    row = [
        (round(float(rewards[a]), 4), bool(terminated[a]), float(infos[a]["cost"]))
        for a in env.possible_agents
    ]
    return following, observations, row


def test_in_the_corridor_one_gets_out_one_is_buried_and_two_crowd_a_cell():
    # Of 10 cells, the first two fall in with the fourth step: cell 1 is full of rubble then.
    following, _, row = corridor_step([8, 1, 4, 6], [True] * 4, 3, [2, 1, 2, 0])
    assert row == [(1.0, True, 0.0), (-1.0, True, 0.0), (-0.02, False, 1.0), (-0.02, False, 1.0)]
    assert following.cell.tolist() == [9, 1, 5, 5]
    assert following.inside.tolist() == [False, False, True, True]


def test_nobody_walks_through_the_corridors_beginning_or_moves_once_gone():
    following, observations, row = corridor_step([0, 9, 0], [True, False, False], 0, [0, 0, 2])
    assert following.cell.tolist() == [0, 9, 0] and row[0] == (-0.02, False, 0.0)
    # Own cell, rubble; those who are gone are seen as zeros.
    assert observations["agent_0"].tolist() == [0, 0, 0, 0, 0, 0]


def test_an_agent_sees_the_others_in_order():
    _, observations, _ = corridor_step([3, 5, 1], [True] * 3, 3, [1, 1, 1], pace=4)
    np.testing.assert_allclose(observations["agent_1"], [5 / 9, 1 / 9, -2 / 9, 1, -4 / 9, 1], rtol=1e-6)
    np.testing.assert_allclose(observations["agent_2"], [1 / 9, 1 / 9, 2 / 9, 1, 4 / 9, 1], rtol=1e-6)


def test_the_corridors_agents_leave_at_different_steps_and_all_within_its_longest_episode():
    vector = MultiAgentVectorEnv(make("corridor"), 64)
    actions = jax.random.randint(jax.random.key(1), (40, 3, 64), 0, 3)
    state, _, _ = jax.jit(vector.reset_groups)(jax.random.key(0))
    _, steps = jax.jit(lambda s, a: jax.lax.scan(lambda s, a: vector.step_groups(s, (a,)), s, a))(
        state, actions
    )
    ends = np.asarray(steps.groups[0].ended)
    assert not steps.groups[0].truncated.any()
    assert steps.groups[0].episode_length.max() <= 20
    # In most copies the first three ends fall into different steps.
    assert (ends.sum(1).max(axis=0) < 3).mean() > 0.5


@pytest.mark.parametrize(("name", "shape"), [("corridor", (128, 480, 3)), ("safe_spread", (352, 352, 3))])
def test_a_picture_shows_the_state(name, shape):
    env = make(name)
    assert can_render(env)
    state, _, _ = env.reset(jax.random.key(0))
    first = render(env, state)
    for _ in range(4):
        state = env.step(state, dict.fromkeys(env.possible_agents, 2))[0]
    second = render(env, state)
    assert first.shape == second.shape == shape and first.dtype == np.uint8
    assert (first != second).any(axis=-1).mean() > 0.005


STATE, OBSERVATIONS, REWARDS, TERMINATED, TRUNCATED, INFOS = range(6)


def altered(place, change):
    """A Crowd whose `step` returns something else at one place."""

    class Altered(Crowd):
        def step(self, state, actions):
            items = list(super().step(state, actions))
            items[place] = change(items[place])
            return tuple(items)

    return Altered()


def without(agent):
    return lambda by_agent: {name: value for name, value in by_agent.items() if name != agent}


def changed(agent, value):
    return lambda by_agent: {**by_agent, agent: value}


@pytest.mark.parametrize(
    ("env", "match"),
    [
        (altered(REWARDS, without("bob")), "Altered.step gave no rewards for bob; every dict holds all"),
        (altered(INFOS, without("dan")), "Altered.step gave no infos for dan"),
        (
            altered(OBSERVATIONS, changed("dan", jnp.zeros(3))),
            r"step for dan returned .*shape \(3,\); its .*\(2,\)",
        ),
        (altered(REWARDS, changed("ann", True)), "step for ann must return a real scalar as rewards"),
        (altered(TERMINATED, changed("ann", 1.0)), "step for ann must return a boolean scalar as terminated"),
        (
            altered(TRUNCATED, lambda flags: list(flags.values())),
            "give truncated as a dict by agent, got a list",
        ),
        (
            altered(INFOS, changed("cat", {"cost": jnp.zeros(2)})),
            "step for cat must return a real scalar as cost",
        ),
        (
            altered(STATE, lambda state: state.steps),
            "must return a state of the structure that reset returns",
        ),
        (Crowd(0), "Crowd.max_steps must be an integer >= 1"),
        (Crowd(5, ()), "Crowd.possible_agents must be a tuple of at least one name"),
        (Crowd(5, ("ann", "ann")), "Crowd.possible_agents names an agent twice"),
        (make("cartpole"), "must derive from MultiAgentEnv, got CartPole"),
    ],
)
def test_what_breaks_the_contract_is_named_with_its_agent(env, match):
    with pytest.raises(EnvironmentContractError, match=match):
        check_multi_agent_environment(env)


def test_an_unsupported_space_is_named_with_its_agent():
    import gymnasium

    odd = type("Odd", (Crowd,), {"action_space": lambda self, state, agent: gymnasium.spaces.Text(3)})
    with pytest.raises(UnsupportedSpaceError, match="Odd.action_space of ann: The space Text"):
        check_multi_agent_environment(odd())


def test_a_face_and_a_vector_of_one_copy_tell_the_same():
    env = Crowd(9)
    face = to_parallel_env(env)
    observations, _ = face.reset(seed=3)
    assert face.agents == ["ann", "bob", "cat"]  # dan appears after the first step
    vector = MultiAgentVectorEnv(env, 1)
    state, _ = jax.jit(vector.reset)(jax.random.key(0))
    # The same episode: the face's own state, with a copy axis.
    state = jax.tree.map(lambda leaf: leaf[None], face._state)
    step = jax.jit(vector.step)
    while face.agents:
        actions = {a: face.action_space(a).sample() for a in face.possible_agents}
        acting = list(face.agents)
        observed, rewards, terminated, truncated, infos = face.step({a: actions[a] for a in acting})
        state, record = step(state, {a: np.asarray(actions[a])[None] for a in actions})
        for agent in acting:
            mine = record.agents[agent]
            np.testing.assert_array_equal(mine.final_observation[0], observed[agent])
            assert rewards[agent] == float(mine.reward[0])
            assert (terminated[agent], truncated[agent]) == (
                bool(mine.terminated[0]),
                bool(mine.truncated[0]),
            )
            assert infos[agent]["name"] == AGENT_PLACES[agent]
        assert bool(record.ended[0]) == (not face.agents)
        left = {a for a, mine in record.agents.items() if bool(mine.alive[0])}
        assert bool(record.ended[0]) or set(face.agents) == left
    assert int(state.length[0]) == 0


AGENT_PLACES = {"ann": 0, "bob": 1, "cat": 2, "dan": 3}


def test_a_face_is_reproducible_by_its_seed_and_draws_new_episodes_without_one():
    face = to_parallel_env(make("safe_spread"))
    first, _ = face.reset(seed=5)
    second, _ = face.reset()
    again, _ = face.reset(seed=5)
    np.testing.assert_array_equal(first["agent_0"], again["agent_0"])
    assert (first["agent_0"] != second["agent_0"]).any()


def test_a_face_refuses_missing_actions_wrong_shapes_and_steps_without_an_episode():
    face = to_parallel_env(Crowd())
    with pytest.raises(EnvironmentContractError, match="Call reset before step: Crowd has no agent left"):
        face.step({})
    face.reset(seed=0)
    with pytest.raises(EnvironmentContractError, match="Crowd got no action for bob, cat"):
        face.step({"ann": 0})
    with pytest.raises(EnvironmentContractError, match=r"shape \(2,\) for cat, got shape \(\)"):
        face.step({"ann": 0, "bob": 0, "cat": 1})


def test_a_face_draws_where_its_environment_can_be_drawn():
    face = to_parallel_env(make("corridor"), "rgb_array")
    face.reset(seed=0)
    assert face.render().shape == (128, 480, 3)
    with pytest.raises(ConfigError, match=r"Crowd knows the render modes \[\], got 'rgb_array'"):
        to_parallel_env(Crowd(), "rgb_array")
