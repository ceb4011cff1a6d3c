"""VectorEnv and AutoReset: one implementation of episodes, equal to a plain loop."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.envs import Step, VectorEnv, make
from dressage.envs.wrappers import AutoReset, EpisodeStatistics, SquashAction, TimeLimit
from dressage.errors import ConfigError
from tests.envs.toys import Diary, Line
from tests.oracles.episode_loop import run_loop

COPIES, STEPS = 4, 23
ACTIONS = np.linspace(-1, 1, STEPS * COPIES, dtype=np.float32).reshape(STEPS, COPIES)


@partial(jax.jit, static_argnums=0)
def run_vector(vector, key, actions):
    state, first = vector.reset(key)
    _, steps = jax.lax.scan(vector.step, state, actions)
    return first, steps


def assert_rows_equal(steps, rows):
    rows = {**rows, "observation": rows["observation"]}
    for field in dataclasses.fields(Step):
        got, expected = getattr(steps, field.name), rows[field.name]
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6), got, expected)


@pytest.mark.parametrize(
    ("max_steps", "fixed_init", "offset_step"),
    [(5, False, False), (5, True, False), (4, False, True), (4, True, True)],
)
def test_a_vector_equals_copies_stepped_in_a_plain_loop(max_steps, fixed_init, offset_step):
    env, key = Diary(max_steps), jax.random.key(3)
    vector = VectorEnv(env, COPIES, fixed_init=fixed_init, offset_step=offset_step)
    first, steps = run_vector(vector, key, ACTIONS)
    expected_first, rows = run_loop(env, key, ACTIONS, fixed_init=fixed_init, offset_step=offset_step)
    np.testing.assert_allclose(first, expected_first, rtol=1e-6)
    assert_rows_equal(steps, rows)
    assert steps.terminated.any() and (steps.truncated & ~steps.terminated).any()


def test_cartpole_in_a_vector_equals_copies_stepped_in_a_plain_loop():
    env, key = make("cartpole", max_steps=9), jax.random.key(1)
    actions = np.ones((14, 3), np.int32)
    _, steps = run_vector(VectorEnv(env, 3), key, actions)
    _, rows = run_loop(env, key, actions, fixed_init=False, offset_step=False)
    assert_rows_equal(steps, rows)


@pytest.fixture(scope="module", params=[False, True], ids=["fresh", "fixed"])
def diary(request):
    first, steps = run_vector(
        VectorEnv(Diary(), COPIES, fixed_init=request.param), jax.random.key(0), ACTIONS
    )
    return request.param, first, steps


def identities(first, steps):
    """Identity of every episode that began, in order, for each copy."""
    rows = np.concatenate([np.asarray(first)[None], np.asarray(steps.observation)])
    return [rows[rows[:, copy, 1] == 0, copy, 0] for copy in range(COPIES)]


def test_copies_start_from_different_states(diary):
    _, first, _ = diary
    assert len(np.unique(first[:, 0])) == COPIES


def test_fixed_starts_are_reused_and_fresh_ones_drawn_anew_in_every_episode_of_every_copy(diary):
    fixed, first, steps = diary
    begun = identities(first, steps)
    assert all(len(one) >= 4 for one in begun)
    if fixed:
        assert [len(np.unique(one)) for one in begun] == [1] * COPIES
    else:
        assert len(np.unique(np.concatenate(begun))) == sum(map(len, begun))


def test_no_first_observation_leaks_into_the_step_that_ended_the_episode_before(diary):
    _, _, steps = diary
    assert (steps.final_observation[..., 1] > 0).all()
    np.testing.assert_array_equal(steps.final_observation[..., 1], steps.episode_length)
    ended = np.asarray(steps.ended)
    assert (steps.observation[ended][:, 1] == 0).all()
    np.testing.assert_array_equal(steps.observation[~ended], steps.final_observation[~ended])


def test_info_is_that_of_the_step_and_never_of_the_episode_that_follows(diary):
    fixed, _, steps = diary
    np.testing.assert_array_equal(steps.info["identity"], steps.final_observation[..., 0])
    ended = np.asarray(steps.ended)
    if not fixed:
        assert (steps.info["identity"][ended] != steps.observation[ended][:, 0]).all()


def test_a_time_limit_is_a_truncation_and_no_termination():
    # Walking right and left, Line never ends by itself.
    actions = np.tile(np.array([[1], [0]]), (8, 2))
    _, steps = run_vector(VectorEnv(Line(max_steps=6), 2), jax.random.key(0), actions)
    assert np.flatnonzero(steps.truncated[:, 0]).tolist() == [5, 11]
    assert not steps.terminated.any()


def test_a_truncation_by_the_environment_itself_is_honoured_before_the_time_limit():
    _, steps = run_vector(VectorEnv(Line(max_steps=6), 2), jax.random.key(0), np.zeros((8, 2), np.int32))
    assert np.flatnonzero(steps.truncated[:, 0]).tolist() == [3, 7]
    assert steps.final_observation[3, 0, 0] == -4
    assert not steps.terminated.any()


def test_a_termination_at_the_time_limit_keeps_both_flags():
    _, steps = run_vector(VectorEnv(Line(max_steps=3), 1), jax.random.key(0), np.ones((3, 1), np.int32))
    assert (bool(steps.terminated[2, 0]), bool(steps.truncated[2, 0])) == (True, True)


def test_returns_and_lengths_are_those_of_the_episode_that_the_step_belongs_to():
    # 1 + 4 + 9, then a new episode: 1.
    _, steps = run_vector(VectorEnv(Line(), 1), jax.random.key(0), np.ones((4, 1), np.int32))
    assert steps.episode_return[:, 0].tolist() == [1, 5, 14, 1]
    assert steps.episode_length[:, 0].tolist() == [1, 2, 3, 1]


def test_offset_steps_spread_the_first_time_limits_evenly_and_only_the_first():
    vector = VectorEnv(Line(max_steps=8), 4, offset_step=True)
    actions = np.tile(np.array([[1], [0]]), (9, 4))
    _, steps = run_vector(vector, jax.random.key(0), actions)
    ends = [np.flatnonzero(steps.ended[:, copy]).tolist() for copy in range(4)]
    assert ends == [[7, 15], [5, 13], [3, 11], [1, 9, 17]]
    assert steps.episode_length[1, 3] == 2


def test_mapping_a_vector_over_a_second_axis_equals_single_ones():
    vector = VectorEnv(Diary(), COPIES)
    keys = jax.random.split(jax.random.key(8), 3)
    mapped = jax.jit(jax.vmap(lambda key: run_vector(vector, key, ACTIONS)))(keys)
    singles = [run_vector(vector, key, ACTIONS) for key in keys]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *singles)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), mapped, stacked)


def test_stepping_compiles_once():
    vector = VectorEnv(Diary(), COPIES)
    traces = []

    @jax.jit
    def step(state, action):
        traces.append(None)
        return vector.step(state, action)

    state, _ = jax.jit(vector.reset)(jax.random.key(0))
    for action in ACTIONS:
        state, _ = step(state, action)
    assert len(traces) == 1


def test_no_reset_is_computed_in_a_step_in_which_nothing_ended():
    vector = VectorEnv(make("cartpole"), 4)
    state, _ = vector.reset(jax.random.key(0))
    jaxpr = jax.make_jaxpr(vector.step)(state, jnp.zeros(4, jnp.int32)).jaxpr
    outside = {equation.primitive.name for equation in jaxpr.eqns}
    inside = str([equation.params for equation in jaxpr.eqns if equation.primitive.name == "cond"])
    assert "cond" in outside and not any("random" in name for name in outside)
    assert "random_bits" in inside


def test_a_fixed_start_carries_no_key():
    state, _ = VectorEnv(Diary(), 2, fixed_init=True).reset(jax.random.key(0))
    assert state.rng is None


def test_a_reset_state_can_be_donated():
    vector = VectorEnv(Diary(), 2, fixed_init=True)
    state, _ = vector.reset(jax.random.key(0))
    state, _ = jax.jit(vector.step, donate_argnums=0)(state, jnp.zeros(2))
    assert state.length.tolist() == [1, 1]


def test_old_style_keys_work_too():
    _, new = run_vector(VectorEnv(Diary(), COPIES), jax.random.key(5), ACTIONS)
    _, old = run_vector(VectorEnv(Diary(), COPIES), jax.random.PRNGKey(5), ACTIONS)
    np.testing.assert_array_equal(new.observation, old.observation)


def test_an_environment_that_resets_itself_is_not_reset_twice():
    inner = SquashAction(AutoReset(Diary()))
    _, steps = run_vector(VectorEnv(inner, COPIES), jax.random.key(3), ACTIONS)
    _, plain = run_vector(VectorEnv(SquashAction(Diary()), COPIES), jax.random.key(3), ACTIONS)
    assert "final_observation" not in steps.info
    np.testing.assert_array_equal(steps.final_observation[..., 1], steps.episode_length)
    np.testing.assert_array_equal(steps.info["episode_length"], steps.episode_length)
    ended = np.asarray(steps.ended)
    assert (steps.observation[ended][:, 1] == 0).all() and ended.any()
    assert steps.ended.shape == plain.ended.shape


@pytest.mark.parametrize("fixed_init", [False, True])
def test_a_single_environment_with_automatic_reset_equals_the_plain_loop(fixed_init):
    env = AutoReset(Diary(), fixed_init)
    state, first, info = env.reset(jax.random.split(jax.random.key(3), 1)[0])
    step = jax.jit(env.step)
    _, rows = run_loop(Diary(), jax.random.key(3), ACTIONS[:, :1], fixed_init=fixed_init, offset_step=False)
    structure = jax.tree.structure(info)
    for t, action in enumerate(ACTIONS[:, 0]):
        state, observation, reward, terminated, truncated, info = step(state, action)
        np.testing.assert_allclose(observation, rows["observation"][t, 0], rtol=1e-6)
        np.testing.assert_allclose(info["final_observation"], rows["final_observation"][t, 0], rtol=1e-6)
        assert (float(reward), bool(terminated)) == (rows["reward"][t, 0], rows["terminated"][t, 0])
        assert bool(truncated) == rows["truncated"][t, 0]
        assert int(info["episode_length"]) == rows["episode_length"][t, 0]
    assert jax.tree.structure(info) == structure


def test_an_automatic_reset_goes_around_an_environment_once():
    with pytest.raises(ConfigError, match="TimeLimit resets itself already"):
        AutoReset(TimeLimit(AutoReset(Diary()), 3))


@pytest.mark.parametrize("number", [0, -1, 2.5, True, "4", None])
def test_a_wrong_number_of_copies_is_refused(number):
    with pytest.raises(ConfigError, match="num_envs must be an integer >= 1, got"):
        VectorEnv(Diary(), number)


def test_an_offset_is_refused_where_the_environment_resets_itself():
    with pytest.raises(ConfigError, match="offset_step needs an environment without AutoReset"):
        VectorEnv(EpisodeStatistics(AutoReset(Diary())), 2, offset_step=True)


def test_states_of_plain_python_numbers_work():
    class Plain(Line):
        def initial_state(self, rng):
            return {"place": 0}

        def observation(self, state):
            return jnp.asarray(state["place"], jnp.float32)[None]

    _, steps = run_vector(VectorEnv(Plain(), 2), jax.random.key(0), np.ones((4, 2), np.int32))
    assert steps.observation[:, 0, 0].tolist() == [1, 2, 0, 1]


def test_an_environment_that_does_not_reset_itself_says_so():
    with pytest.raises(NotImplementedError, match="Diary does not reset itself; wrap it in AutoReset"):
        Diary().restart(None)
