"""MultiAgentVectorEnv: equal to a plain loop over names, also where agents die, vanish and appear late."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.envs import AgentStep, MultiAgentVectorEnv, make
from dressage.envs.spaces import Box
from dressage.errors import ConfigError
from tests.envs.multi_agent_toys import AGENTS, Crowd
from tests.oracles.multi_agent_loop import LoopedAgents, run_agents_loop

COPIES, STEPS = 4, 19
RNG = np.random.default_rng(0)
ACTIONS = {
    agent: RNG.integers(0, [3, 2], (STEPS, COPIES, 2))
    if agent == "cat"
    else RNG.integers(0, 4, (STEPS, COPIES))
    for agent in AGENTS
}


@partial(jax.jit, static_argnums=0)
def run_vector(vector, key, actions):
    state, first = vector.reset(key)
    _, steps = jax.lax.scan(vector.step, state, actions)
    return first, steps, agents_of(steps)


def agents_of(steps):
    """Records by agent of stacked steps, whose groups are `[T, A, B, ...]`."""
    return jax.vmap(lambda step: step.agents)(steps)


@pytest.fixture(
    scope="module",
    params=[(5, False, False), (5, True, False), (4, False, True), (9, True, True)],
    ids=["fresh", "fixed", "fresh-offset", "fixed-offset"],
)
def both(request):
    max_steps, fixed_init, offset_step = request.param
    env, key = Crowd(max_steps), jax.random.key(2)
    vector = MultiAgentVectorEnv(env, COPIES, fixed_init=fixed_init, offset_step=offset_step)
    ours = run_vector(vector, key, ACTIONS)
    return ours, run_agents_loop(env, key, ACTIONS, fixed_init=fixed_init, offset_step=offset_step)


def assert_equal(got, expected):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), got, expected)


@pytest.mark.parametrize("agent", AGENTS)
def test_every_agent_of_a_vector_sees_what_a_plain_loop_gives_it(both, agent):
    (first, _, agents), (expected_first, rows, _) = both
    assert_equal(first[agent], expected_first[agent])
    for field in dataclasses.fields(AgentStep):
        assert_equal(getattr(agents[agent], field.name), rows[agent][field.name])


def test_a_copy_ends_when_no_agent_is_left_in_it(both):
    (_, steps, _), (_, _, ended) = both
    np.testing.assert_array_equal(steps.ended, ended)
    assert ended.sum() > COPIES


def test_a_dead_agents_rows_hold_nothing_and_the_living_go_on(both):
    (_, _, agents), _ = both
    for record in agents.values():
        dead = ~np.asarray(record.alive_before)
        assert dead.any()
        for field in ("reward", "cost", "terminated", "truncated"):
            assert not np.asarray(getattr(record, field))[dead].any()


def test_an_agent_that_vanishes_without_a_flag_was_cut_off_and_not_finished(both):
    (_, _, agents), _ = both
    assert not agents["cat"].terminated.any() and agents["cat"].truncated.any()


def test_no_first_observation_leaks_into_the_step_before(both):
    (_, steps, agents), _ = both
    ended = np.asarray(steps.ended)
    for record in agents.values():
        assert (np.asarray(record.final_observation)[..., 1] > 0).all()
        assert (np.asarray(record.observation)[ended][:, 1] == 0).all()
        same = np.asarray(record.observation == record.final_observation).all(-1)
        np.testing.assert_array_equal(same, ~ended)


def test_agents_with_equal_spaces_form_a_group():
    vector = MultiAgentVectorEnv(Crowd(), 2)
    assert vector.groups == (("ann", "bob"), ("cat",), ("dan",))
    assert vector.possible_agents == AGENTS and vector.max_steps == 5
    assert vector.observation_space("dan") == Box(-np.inf, np.inf, (2,)).to_gymnasium()
    state, observations, alive = jax.jit(vector.reset_groups)(jax.random.key(0))
    assert [seen.shape for seen in observations] == [(2, 2, 3), (1, 2, 3), (1, 2, 2)]
    assert [one.tolist() for one in alive] == [[[True, True]] * 2, [[True, True]], [[False, False]]]
    actions = jnp.zeros((2, 2), int), jnp.zeros((1, 2, 2), int), jnp.zeros((1, 2), int)
    _, step = vector.step_groups(state, actions)
    assert [group.reward.shape for group in step.groups] == [(2, 2), (1, 2), (1, 2)]
    # 10 a step, and the agent's place.
    assert step.groups[0].reward.tolist() == [[10, 10], [11, 11]]


def test_the_order_of_the_dict_of_actions_changes_nothing():
    vector, key = MultiAgentVectorEnv(Crowd(), COPIES), jax.random.key(0)
    turned = dict(reversed(ACTIONS.items()))
    assert list(turned) != list(ACTIONS)
    one, other = run_vector(vector, key, ACTIONS), run_vector(vector, key, turned)
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_the_actions_of_the_dead_change_nothing():
    vector, key = MultiAgentVectorEnv(make("corridor"), 3), jax.random.key(0)
    state, _ = vector.reset(key)
    step = jax.jit(vector.step)
    other, dead = state, []
    for t in range(12):
        forward = dict.fromkeys(vector.possible_agents, jnp.full(3, 2))
        living = jax.vmap(vector.env.alive)(other.inner)
        noisy = {a: jnp.where(living[a], chosen, t % 3) for a, chosen in forward.items()}
        state, plain = step(state, forward)
        other, shaken = step(other, noisy)
        jax.tree.map(np.testing.assert_array_equal, plain, shaken)
        dead.append(not living["agent_0"].all())
    assert any(dead)


def test_copies_start_from_different_states_and_fixed_starts_are_reused():
    for fixed_init in (False, True):
        vector = MultiAgentVectorEnv(Crowd(), COPIES, fixed_init=fixed_init)
        first, steps, agents = run_vector(vector, jax.random.key(0), ACTIONS)
        assert len(np.unique(first["ann"][:, 0])) == COPIES
        ended = np.asarray(steps.ended)
        begun = [np.unique(np.asarray(agents["ann"].observation)[ended[:, b], b, 0]) for b in range(COPIES)]
        assert [len(one) for one in begun] == ([1] * COPIES if fixed_init else ended.sum(0).tolist())


def test_mapping_a_vector_over_a_second_axis_equals_single_ones():
    vector = MultiAgentVectorEnv(Crowd(), COPIES)
    keys = jax.random.split(jax.random.key(8), 2)
    mapped = jax.jit(jax.vmap(lambda key: run_vector(vector, key, ACTIONS)))(keys)
    singles = [run_vector(vector, key, ACTIONS) for key in keys]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *singles)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), mapped, stacked)


def test_a_large_vector_that_restarts_a_handful_equals_its_copies_alone():
    copies, key = 300, jax.random.key(4)
    large = MultiAgentVectorEnv(Crowd(6), copies)
    actions = {a: np.resize(chosen, (6, copies, *chosen.shape[2:])) for a, chosen in ACTIONS.items()}
    _, steps, agents = run_vector(large, key, actions)
    few = np.asarray(steps.ended).sum(1)
    assert few.min() <= copies // 16 < few.max()  # both ways of restarting occur
    picked = [0, 100, 299]
    env, keys = Crowd(6), jax.random.split(key, copies)
    for b in picked:
        loop = LoopedAgents(env, keys[b], False, 0)
        for t in range(6):
            rows, ended = loop.step({a: chosen[t, b] for a, chosen in actions.items()})
            assert ended == bool(steps.ended[t, b])
            np.testing.assert_allclose(agents["ann"].observation[t, b], rows["ann"]["observation"], rtol=1e-6)


def test_no_reset_is_computed_in_a_step_in_which_nothing_ended():
    vector = MultiAgentVectorEnv(make("safe_spread"), 4)
    state, _ = jax.jit(vector.reset)(jax.random.key(0))
    actions = dict.fromkeys(vector.possible_agents, jnp.zeros(4, jnp.int32))
    jaxpr = jax.make_jaxpr(vector.step)(state, actions).jaxpr
    outside = {equation.primitive.name for equation in jaxpr.eqns}
    inside = str([equation.params for equation in jaxpr.eqns if equation.primitive.name == "cond"])
    assert "cond" in outside and not any("random" in name for name in outside)
    assert "random_bits" in inside


def test_a_reset_state_can_be_donated():
    vector = MultiAgentVectorEnv(make("safe_spread"), 2, fixed_init=True)
    state, _ = jax.jit(vector.reset)(jax.random.key(0))
    assert state.rng is None
    actions = dict.fromkeys(vector.possible_agents, jnp.zeros(2, jnp.int32))
    state, _ = jax.jit(vector.step, donate_argnums=0)(state, actions)
    assert state.length.tolist() == [1, 1]


@pytest.mark.parametrize("number", [0, -1, 2.5, True, "4", None])
def test_a_wrong_number_of_copies_is_refused(number):
    with pytest.raises(ConfigError, match="MultiAgentVectorEnv's num_envs must be an integer >= 1, got"):
        MultiAgentVectorEnv(Crowd(), number)
