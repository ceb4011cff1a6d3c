"""Wrappers of one environment, alone, in one another, and in a vector."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.envs import VectorEnv, check_environment, make
from dressage.envs.spaces import Box, Discrete
from dressage.envs.wrappers import (
    ActionDelay,
    AutoReset,
    ClipAction,
    EpisodeStatistics,
    ObservationHistory,
    RandomizeParameters,
    SquashAction,
    TimeLimit,
    UniformParameters,
    spaces_of,
)
from dressage.errors import ConfigError, UnsupportedSpaceError
from tests.envs.toys import Diary, Line


@partial(jax.jit, static_argnums=0)
def run(env, key, actions):
    """Return the first observation and everything that the steps gave, `[T, ...]`."""

    def body(state, action):
        state, *rest = env.step(state, action)
        return state, tuple(map(jnp.asarray, rest[:4])) + (rest[4],)

    state, observation, _ = env.reset(key)
    return observation, jax.lax.scan(body, state, actions)[1]


def run_vector(env, key, actions, copies=3, fixed_init=False):
    vector = VectorEnv(env, copies, fixed_init=fixed_init)

    @jax.jit
    def rollout(key, actions):
        state, first = vector.reset(key)
        return first, jax.lax.scan(vector.step, state, actions)[1]

    return rollout(key, jnp.broadcast_to(actions[:, None], (len(actions), copies, *actions.shape[1:])))


KEY = jax.random.key(2)
ZEROS = np.zeros(12, np.float32)


def test_a_time_limit_truncates_and_lowers_the_longest_episode():
    env = TimeLimit(Line(max_steps=8), 4)
    _, (_, _, terminated, truncated, _) = run(env, KEY, np.array([1, 0, 1, 0]))
    assert (env.max_steps, truncated.tolist(), terminated.any()) == (4, [False] * 3 + [True], False)
    assert TimeLimit(Line(max_steps=2), 4).max_steps == 2


def test_a_time_limit_keeps_the_environments_own_truncation():
    _, (_, _, _, truncated, _) = run(TimeLimit(Line(), 100), KEY, np.zeros(4, int))
    assert truncated.tolist() == [False] * 3 + [True]


@pytest.mark.parametrize("outside", [False, True])
def test_a_time_limit_works_inside_and_outside_of_an_automatic_reset(outside):
    env = TimeLimit(AutoReset(Diary(100)), 4) if outside else AutoReset(TimeLimit(Diary(100), 4))
    _, (observation, _, _, truncated, info) = run(env, KEY, ZEROS)
    final = info["final_observation"]
    assert (final[:, 1] >= 1).all() and (final[:, 1] <= 4).all()
    cut = np.asarray(final[:, 1] == 4)
    assert cut.any() and (np.asarray(truncated)[cut]).all()
    assert (observation[cut][:, 1] == 0).all()
    assert (observation[cut][:, 0] != final[cut][:, 0]).all()


@pytest.mark.parametrize("limit", [0, 2.5, True, "3"])
def test_a_wrong_time_limit_is_refused(limit):
    with pytest.raises(ConfigError, match="TimeLimit's limit must be an integer >= 1"):
        TimeLimit(Line(), limit)


def test_statistics_are_those_of_the_running_episode():
    _, (_, _, _, _, info) = run(EpisodeStatistics(Line()), KEY, np.array([1, 1, 1]))
    assert info["episode_return"].tolist() == [1, 5, 14]
    assert info["episode_length"].tolist() == [1, 2, 3]
    assert info["place"].tolist() == [1, 2, 3]


def test_statistics_around_an_automatic_reset_begin_anew():
    _, (_, _, _, _, info) = run(EpisodeStatistics(AutoReset(Line())), KEY, np.array([1, 1, 1, 1, 1]))
    assert info["episode_return"].tolist() == [1, 5, 14, 1, 5]
    assert info["episode_length"].tolist() == [1, 2, 3, 1, 2]


def test_a_history_is_oldest_first_and_filled_with_the_first_observation():
    first, (history, *_) = run(ObservationHistory(Line(), 3), KEY, np.array([1, 1, 0]))
    assert first[..., 0].tolist() == [0, 0, 0]
    assert history[..., 0].tolist() == [[0, 0, 1], [0, 1, 2], [1, 2, 1]]


@pytest.mark.parametrize("order", ["history inside", "history outside"])
def test_the_history_of_a_new_episode_starts_clean_and_the_old_one_keeps_its_end(order):
    inside = AutoReset(ObservationHistory(Diary(), 3))
    env = inside if order == "history inside" else ObservationHistory(AutoReset(Diary()), 3)
    _, (history, _, terminated, truncated, info) = run(env, KEY, ZEROS)
    ended = np.asarray(terminated | truncated)
    assert 2 <= ended.sum() < len(ended)
    assert (history[ended][:, :, 1] == 0).all()
    for rows in (np.asarray(history), np.asarray(info["final_observation"])):
        assert (rows[:, :, 0] == rows[:, :1, 0]).all(), "identities of two episodes meet in one history"
    steps = np.asarray(info["final_observation"])[:, :, 1]
    np.testing.assert_array_equal(steps[ended], steps[ended][:, -1:] + np.arange(-2, 1))


def test_a_history_needs_a_box_to_observe():
    class Numbered(Line):
        def observation_space(self, state):
            return Discrete(9)

    with pytest.raises(
        UnsupportedSpaceError, match="ObservationHistory needs a Box to observe; Numbered has"
    ):
        ObservationHistory(Numbered(), 2)


@pytest.mark.parametrize("wrap", [lambda n: ObservationHistory(Line(), n), lambda n: ActionDelay(Line(), n)])
def test_a_wrong_length_of_memory_is_refused(wrap):
    with pytest.raises(ConfigError, match="must be an integer >="):
        wrap(-1)


@pytest.mark.parametrize(("delay", "applied"), [(0, [1, 2, 3, 4]), (1, [0, 1, 2, 3]), (2, [0, 0, 1, 2])])
def test_a_delayed_action_arrives_after_so_many_steps(delay, applied):
    _, (observation, *_) = run(ActionDelay(Diary(), delay), KEY, np.float32([1, 2, 3, 4]))
    assert observation[:, 2].tolist() == applied


@pytest.mark.parametrize("order", ["delay inside", "delay outside"])
def test_no_action_of_the_episode_before_arrives_in_the_next(order):
    env = AutoReset(ActionDelay(Line(), 2)) if order == "delay inside" else ActionDelay(AutoReset(Line()), 2)
    # Neutral is 0, a step to the left: -1, -2, then pushes to the right until 3, with the last two unused.
    _, (_, _, terminated, _, info) = run(env, KEY, np.ones(12, int))
    assert np.flatnonzero(terminated).tolist() == [6]
    assert info["place"].tolist() == [-1, -2, -1, 0, 1, 2, 3, -1, -2, -1, 0, 1]


def test_the_neutral_action_is_the_bound_nearest_to_zero():
    class Above(Diary):
        def action_space(self, state):
            return Box(0.5, 2.0, ())

    _, (observation, *_) = run(ActionDelay(Above(), 1), KEY, np.float32([2, 2]))
    assert observation[:, 2].tolist() == [0.5, 2.0]


def test_squashing_maps_all_numbers_into_the_bounds():
    class Skewed(Diary):
        def action_space(self, state):
            return Box(-2.0, 6.0, ())

    # The worked number of u = 1.2 between -2 and 6.
    _, (observation, *_) = run(SquashAction(Skewed()), KEY, np.float32([0, 1.2, 50, -50]))
    np.testing.assert_allclose(observation[:, 2], [2.0, 5.3346184, 6.0, -2.0], rtol=1e-6)


def test_clipping_takes_the_nearest_action_within_bounds_that_may_be_infinite():
    class Half(Diary):
        def action_space(self, state):
            return Box(-np.inf, 1.0, ())

    _, (observation, *_) = run(ClipAction(Half()), KEY, np.float32([-7, 0.5, 3]))
    assert observation[:, 2].tolist() == [-7, 0.5, 1]


@pytest.mark.parametrize("wrapper", [SquashAction, ClipAction])
def test_squashed_and_clipped_environments_offer_unbounded_actions(wrapper):
    assert spaces_of(wrapper(make("pendulum")))[1] == Box(-np.inf, np.inf, (1,))


@pytest.mark.parametrize(
    ("low", "high", "match"),
    [
        ([-1, 0], [1, np.inf], r"dimension 1 has bounds \[0, inf\]: squashing needs finite bounds"),
        ([-1, -3.4028235e38], [1, 1], "dimension 1 has bounds .*: squashing needs finite bounds"),
        ([2, 0], [2, 1], r"dimension 0 has bounds \[2, 2\]: the lower bound must be below"),
    ],
)
def test_bounds_that_cannot_be_squashed_into_are_refused_by_dimension(low, high, match):
    class Bounded(Diary):
        def action_space(self, state):
            return Box(np.float32(low), np.float32(high))

    with pytest.raises(ConfigError, match=match):
        SquashAction(Bounded())


@pytest.mark.parametrize("wrapper", [SquashAction, ClipAction])
def test_discrete_actions_are_neither_squashed_nor_clipped(wrapper):
    with pytest.raises(UnsupportedSpaceError, match="needs an action space Box of floats; Line has Discrete"):
        wrapper(Line())


ORDERS = list(itertools.permutations(["limit", "statistics", "history", "delay", "squash", "reset"]))[5::72]
WRAP = {
    "limit": lambda env: TimeLimit(env, 4),
    "statistics": EpisodeStatistics,
    "history": lambda env: ObservationHistory(env, 2),
    "delay": lambda env: ActionDelay(env, 1),
    "squash": SquashAction,
    "reset": AutoReset,
}


@pytest.mark.parametrize("order", ORDERS, ids=" ".join)
def test_the_final_observation_survives_every_order_of_wrappers(order):
    env = Diary(100)
    for name in order:
        # A delay around a squashed action has the unbounded space; both orders are legal.
        env = WRAP[name](env)
    check_environment(env)
    _, steps = run_vector(env, KEY, ZEROS, copies=2)
    final, following = np.asarray(steps.final_observation), np.asarray(steps.observation)
    np.testing.assert_array_equal(final[:, :, -1, 1], steps.episode_length)
    np.testing.assert_array_equal(steps.info["episode_length"], steps.episode_length)
    ended = np.asarray(steps.ended)
    assert ended.sum() >= 4 and (following[ended][:, :, 1] == 0).all()
    assert (final[:, :, :, 0] == final[:, :, :1, 0]).all()
    assert (np.asarray(steps.info["identity"]) == final[:, :, -1, 0]).all()
    assert np.asarray(steps.episode_length).max() == 4


def test_parameters_are_drawn_anew_in_every_episode_of_every_copy():
    env = RandomizeParameters(Diary(), {"shift": (10.0, 20.0)})
    _, steps = run_vector(env, KEY, ZEROS)
    shift = np.asarray(steps.reward - steps.episode_length)
    np.testing.assert_allclose(shift, steps.info["parameters"]["shift"], rtol=1e-6)
    assert (shift >= 10).all() and (shift <= 20).all()
    episodes = 3 + int(steps.ended[:-1].sum())
    assert len(np.unique(np.asarray(steps.info["parameters"]["shift"]))) == episodes >= 6


def test_parameters_are_drawn_anew_even_where_initial_states_are_kept():
    env = EpisodeStatistics(RandomizeParameters(Diary(), {"shift": (10.0, 20.0)}))
    _, steps = run_vector(env, KEY, ZEROS, fixed_init=True)
    episodes = 3 + int(steps.ended[:-1].sum())
    assert len(np.unique(np.asarray(steps.info["parameters"]["shift"]))) == episodes >= 6
    assert len(np.unique(np.asarray(steps.info["identity"]))) == 3


def test_parameters_reach_an_environment_through_the_wrappers_around_it():
    env = RandomizeParameters(SquashAction(TimeLimit(make("pendulum"), 10)), {"max_torque": (0.5, 1.0)})
    state, _, info = env.reset(KEY)
    limit = info["parameters"]["max_torque"]
    assert 0.5 <= limit <= 1.0
    state = jax.jit(env.step)(state, jnp.full((1,), 50.0))[0]
    np.testing.assert_allclose(state.inner.inner.inner.torque, limit, rtol=1e-6)


def test_a_function_may_draw_the_parameters():
    env = RandomizeParameters(Diary(), lambda key: {"shift": jax.random.choice(key, jnp.array([5.0, 7.0]))})
    _, (_, reward, *_) = run(env, KEY, ZEROS[:2])
    assert float(reward[0]) - 1 in (5.0, 7.0)


def test_uniform_parameters_make_an_environment_that_can_be_a_static_argument():
    env = RandomizeParameters(Diary(), {"shift": (0, 1)})
    assert env.parameters == UniformParameters((("shift", 0.0, 1.0),))
    assert hash(env) == hash(RandomizeParameters(Diary(), {"shift": (0, 1)}))


def test_a_misspelled_parameter_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="Pendulum has no option 'gravty'. Did you mean 'gravity'"):
        RandomizeParameters(make("pendulum"), {"gravty": (8, 12)})


def test_the_time_limit_is_no_parameter_to_draw():
    with pytest.raises(ConfigError, match="Pendulum has no option 'max_steps'"):
        RandomizeParameters(make("pendulum"), {"max_steps": (8, 12)})


def test_a_reversed_range_is_refused():
    with pytest.raises(ConfigError, match=r"parameter 'gravity' must be \(low, high\), got \(12, 8\)"):
        RandomizeParameters(make("pendulum"), {"gravity": (12, 8)})


def test_randomisation_around_an_automatic_reset_is_refused():
    with pytest.raises(ConfigError, match="Put RandomizeParameters inside AutoReset"):
        RandomizeParameters(AutoReset(make("pendulum")), {"gravity": (8, 12)})


def test_spaces_with_bounds_that_the_environment_computes_are_concrete_even_inside_compiled_code():
    class Computed(Diary):
        def action_space(self, state):
            return Box(-jnp.ones(2), jnp.full(2, 3.0))

    seen = []
    jax.jit(lambda x: (seen.append(np.asarray(spaces_of(Computed())[1].high)), x)[1])(0.0)
    assert seen[0].tolist() == [3, 3]
