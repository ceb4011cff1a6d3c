"""Gymnasium on the host: final observations in every autoreset mode, all kinds of spaces."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from dressage.envs import HostTask, HostVectorEnv, from_gymnasium, make
from dressage.equations.returns import compute_gae
from dressage.errors import ConfigError, EnvironmentContractError, UnsupportedSpaceError

LINE = spaces.Box(-100, 100, (1,), np.float32)


class Script(gymnasium.Env):
    """Plays episodes: a first observation, then rows (observation, reward, terminated, truncated)."""

    def __init__(self, episodes, observation_space=None, action_space=None):
        self.metadata = {}
        self.observation_space = LINE if observation_space is None else observation_space
        self.action_space = spaces.Discrete(2) if action_space is None else action_space
        self.episodes = iter(episodes)
        self.actions = []

    def _seen(self, value):
        return np.float32([value]) if self.observation_space is LINE else value

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        first, self.rows = next(self.episodes)
        self.rows = iter(self.rows)
        return self._seen(first), {"place": -1}

    def step(self, action):
        assert self.action_space.contains(action), (action, type(action))
        self.actions.append(action)
        observation, reward, terminated, truncated = next(self.rows)
        return self._seen(observation), reward, terminated, truncated, {"place": observation}


def host(episodes, mode=AutoresetMode.SAME_STEP, **spaces_of_script):
    env = Script(episodes, **spaces_of_script)
    return HostVectorEnv(SyncVectorEnv([lambda: env], autoreset_mode=mode)), env


# The table of rows: reward 1, 2 | (reset) | 1, 1; the second step terminates.
NEXT_STEP_EPISODES = [
    (1.0, [(0.5, 1.0, False, False), (7.0, 2.0, True, False)]),
    (0.4, [(0.3, 1.0, False, False), (0.6, 1.0, False, False)]),
]


def test_next_step_reset_rows_are_no_experience_and_the_rest_has_the_advantages_of_the_table():
    vector, _ = host(NEXT_STEP_EPISODES, AutoresetMode.NEXT_STEP)
    acted_on, steps = [vector.reset(0)], []
    for _ in range(5):
        steps.append(vector.step(np.array([0])))
        acted_on.append(steps[-1].observation)
    valid = np.array([step.valid[0] for step in steps])
    assert valid.tolist() == [True, True, False, True, True]
    # The value function is the observation itself.
    values = np.array([row[0, 0] for row in acted_on[:-1]])[valid]
    next_values = np.array([step.final_observation[0, 0] for step in steps])[valid]
    rewards = np.array([step.reward[0] for step in steps])[valid]
    terminated = np.array([step.terminated[0] for step in steps])[valid]
    assert values.tolist() == pytest.approx([1.0, 0.5, 0.4, 0.3])
    advantages, _ = compute_gae(rewards, terminated, terminated, values, next_values, 0.99, 0.95)
    np.testing.assert_allclose(advantages, [1.90575, 1.5, 2.114007, 1.294], rtol=1e-5)


def test_next_step_reset_rows_count_neither_as_steps_nor_for_returns_nor_as_info():
    vector, env = host(NEXT_STEP_EPISODES, AutoresetMode.NEXT_STEP)
    vector.reset(0)
    steps = [vector.step(np.array([1])) for _ in range(5)]
    assert [int(step.episode_length[0]) for step in steps] == [1, 2, 0, 1, 2]
    assert [float(step.episode_return[0]) for step in steps] == [1, 3, 0, 1, 2]
    assert [bool(step.ended[0]) for step in steps] == [False, True, False, False, False]
    assert [bool(step.info.get("_place", [False])[0]) for step in steps] == [True, True, False, True, True]
    assert len(env.actions) == 4


def test_same_step_bootstraps_from_the_final_observation_as_in_the_table():
    vector, _ = host([(2.5, [(3.0, 1.0, False, True)]), (0.0, [])])
    acted_on = vector.reset(0)
    step = vector.step(np.array([0]))
    assert (step.observation[0, 0], step.final_observation[0, 0]) == (0.0, 3.0)
    assert (bool(step.truncated[0]), bool(step.terminated[0]), bool(step.valid[0])) == (True, False, True)
    # V(o) = 2 o: 1 + 0.9 * 6 - 5
    value, next_value = 2 * acted_on[0], 2 * step.final_observation[0]
    advantages, _ = compute_gae(step.reward, step.terminated, step.ended, value, next_value, 0.9, 0.95)
    np.testing.assert_allclose(advantages, [1.4], rtol=1e-6)


def test_same_step_reports_what_the_step_said_and_not_what_the_reset_said():
    vector, _ = host([(2.5, [(3.0, 1.0, False, True)]), (0.0, [(4.0, 1.0, False, False)])])
    vector.reset(0)
    assert vector.step(np.array([0])).info["place"].tolist() == [3.0]
    assert vector.step(np.array([0])).info["place"].tolist() == [4.0]


def test_copies_that_are_not_reset_keep_their_own_observation_and_info():
    long = Script([(1.0, [(2.0, 1.0, False, False), (3.0, 1.0, False, False)])])
    short = Script([(5.0, [(6.0, 1.0, True, False)]), (0.0, [(9.0, 1.0, False, False)])])
    vector = HostVectorEnv(
        SyncVectorEnv([lambda: long, lambda: short], autoreset_mode=AutoresetMode.SAME_STEP)
    )
    vector.reset(0)
    step = vector.step(np.array([0, 1]))
    assert step.observation[:, 0].tolist() == [2, 0]
    assert step.final_observation[:, 0].tolist() == [2, 6]
    assert step.info["place"].tolist() == [2, 6] and step.info["_place"].all()


def test_a_disabled_reset_is_made_by_us_in_the_copies_that_ended():
    vector, _ = host(
        [(2.5, [(3.0, 1.0, False, True)]), (0.0, [(4.0, 1.0, False, False)])], AutoresetMode.DISABLED
    )
    vector.reset(0)
    step = vector.step(np.array([0]))
    assert (step.observation[0, 0], step.final_observation[0, 0]) == (0.0, 3.0)
    assert vector.step(np.array([0])).observation[0, 0] == 4.0


class Forgetful(SyncVectorEnv):
    """Resets within the step and tells nobody what the action led to."""

    def step(self, actions):
        observation, reward, terminated, truncated, infos = super().step(actions)
        return observation, reward, terminated, truncated, {}


@pytest.mark.parametrize("terminated", [False, True])
def test_only_a_truncation_needs_a_final_observation(terminated):
    env = Script([(2.5, [(3.0, 1.0, terminated, not terminated)]), (0.0, [])])
    vector = HostVectorEnv(Forgetful([lambda: env], autoreset_mode=AutoresetMode.SAME_STEP))
    vector.reset(0)
    if terminated:
        assert vector.step(np.array([0])).final_observation[0, 0] == 2.5
    else:
        with pytest.raises(
            EnvironmentContractError, match=r"Forgetful \(autoreset mode SAME_STEP\).*'final_obs'"
        ):
            vector.step(np.array([0]))


@pytest.mark.parametrize("mode", [None, "sometimes"])
def test_an_undeclared_autoreset_mode_is_refused_at_construction(mode):
    vector = SyncVectorEnv([lambda: Script([])])
    vector.autoreset_mode = mode
    vector.metadata = {"autoreset_mode": mode} if mode else {}
    with pytest.raises(
        EnvironmentContractError, match="SyncVectorEnv must declare.*NEXT_STEP, SAME_STEP, DISABLED"
    ):
        HostVectorEnv(vector)


def test_a_mode_given_as_text_is_understood():
    assert (
        HostVectorEnv(SyncVectorEnv([lambda: Script([])], autoreset_mode="SameStep")).autoreset_mode.name
        == "SAME_STEP"
    )


OBSERVATIONS = [
    (spaces.Discrete(4, start=2), 3, [0, 1, 0, 0]),
    (spaces.Box(0, 255, (2, 2), np.uint8), np.array([[250, 1], [2, 3]], np.uint8), [[250, 1], [2, 3]]),
    (spaces.Box(-np.inf, np.inf, (), np.float64), np.array(1e10), 1e10),
    (spaces.MultiDiscrete([2, 3]), np.array([1, 2]), [0, 1, 0, 0, 1]),
    (
        spaces.Dict({"b": spaces.Box(-9, 9, (2,)), "a": spaces.Box(-9, 9, ())}),
        {"b": np.float32([1, 2]), "a": np.float32(7)},
        [7, 1, 2],
    ),
    (
        spaces.Tuple([spaces.Discrete(2), spaces.Box(-9, 9, (1,))]),
        (1, np.float32([5])),
        [0, 1, 5],
    ),
]


@pytest.mark.parametrize(
    ("space", "observation", "expected"), OBSERVATIONS, ids=lambda value: type(value).__name__
)
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_every_kind_of_observation_becomes_float32_also_as_a_final_one(space, observation, expected, mode):
    episodes = [(observation, [(observation, 1.0, False, True)])] * 2
    vector, _ = host(episodes, mode, observation_space=space)
    first = vector.reset(0)
    step = vector.step(np.array([0]))
    for values in (first, step.final_observation, step.observation):
        assert values.dtype == np.float32 and values.shape == (1, *vector.observation_space.shape)
        np.testing.assert_allclose(values[0], expected)


def test_an_observation_stays_as_it_was_when_the_environment_goes_on():
    vector, _ = host([(1.0, [(2.0, 1.0, False, False)])])
    first = vector.reset(0)
    vector.step(np.array([0]))
    assert first[0, 0] == 1.0


@pytest.mark.parametrize(
    "space",
    [spaces.Sequence(spaces.Discrete(3)), spaces.Box(0, 1, (0,))],
    ids=["no fixed size", "no numbers"],
)
def test_an_observation_that_no_network_can_take_is_refused(space):
    with pytest.raises(
        UnsupportedSpaceError, match="The observation of .* (has no fixed size|holds no numbers)"
    ):
        from_gymnasium(lambda: Script([], observation_space=space))


def test_an_observation_of_another_shape_than_its_space_says_is_refused_at_once():
    class Grows(Forgetful):
        def reset(self, **given):
            return np.zeros((1, 3), np.float32), {}

    with pytest.raises(
        EnvironmentContractError, match=r"observed an array of shape \(1, 3\); its space says \(1, 1\)"
    ):
        HostVectorEnv(Grows([lambda: Script([])])).reset(0)


class Sloppy(Script):
    """Gives whatever it is told to give as the result of a step."""

    def __init__(self, result):
        super().__init__([(0.0, [])])
        self.result = result

    def step(self, action):
        return self.result() if callable(self.result) else self.result


@pytest.mark.parametrize(
    "result",
    [
        (np.zeros(3, np.float32), 0.0, False, False, {}),
        (np.zeros(1, np.float32), 0.0, False, {}),
        (np.zeros(1, np.float32), "much", False, False, {}),
        None,
    ],
    ids=["shape", "four", "reward", "nothing"],
)
def test_a_step_that_gives_what_its_spaces_do_not_say_is_refused_by_name(result):
    vector = HostVectorEnv(SyncVectorEnv([lambda: Sloppy(result)], autoreset_mode="SameStep"), "sloppy")
    vector.reset(0)
    with pytest.raises(EnvironmentContractError, match=r"sloppy\.step returned what .*observations in Box"):
        vector.step(np.zeros(1, np.int64))


def test_an_error_of_the_environment_itself_comes_out_as_it_is():
    vector = HostVectorEnv(
        SyncVectorEnv([lambda: Sloppy(lambda: int("no number"))], autoreset_mode="SameStep")
    )
    vector.reset(0)
    with pytest.raises(ValueError, match="invalid literal") as caught:
        vector.step(np.zeros(1, np.int64))
    assert not isinstance(caught.value, EnvironmentContractError)


ACTIONS = [
    (spaces.Discrete(3, start=-1), [-1, 0, 1]),
    (spaces.MultiDiscrete([2, 3], start=[1, -1]), [[2, -1], [1, 1]]),
    (spaces.MultiDiscrete([[2, 3], [4, 5]]), [[[1, 2], [0, 4]]]),
    (spaces.MultiBinary(3), [[1, 0, 1]]),
    (spaces.Box(-1, 1, (3,), np.float32), [[0.5, 9.0, -9.0]]),
    (spaces.Box(-1, 1, (), np.float32), [0.5, 2.0]),
    (spaces.Box(0.1, 0.7, (1,), np.float64), [[0.1], [0.7]]),
    (spaces.Box(0, 10, (2,), np.int64), [[3.4, 11.0]]),
]


@pytest.mark.parametrize(("space", "actions"), ACTIONS, ids=[str(space) for space, _ in ACTIONS])
def test_every_action_that_arrives_is_contained_in_the_action_space(space, actions):
    rows = [(0.0, 0.0, False, False)] * len(actions)
    vector, env = host([(0.0, rows)], action_space=space)
    vector.reset(0)
    for action in actions:
        vector.step(np.asarray([action], np.float32 if isinstance(space, spaces.Box) else np.int32))
    assert len(env.actions) == len(actions)
    if not isinstance(space, spaces.Box):
        np.testing.assert_array_equal(env.actions, actions)


def test_actions_of_the_wrong_number_are_refused():
    vector, _ = host([(0.0, [])])
    vector.reset(0)
    with pytest.raises(
        EnvironmentContractError, match=r"takes actions of shape \(1,\), got an array of shape \(2,\)"
    ):
        vector.step(np.zeros(2, int))


def test_an_action_space_without_a_policy_is_refused():
    with pytest.raises(UnsupportedSpaceError, match="The action of .*Text"):
        from_gymnasium(lambda: Script([], action_space=spaces.Text(3)))


def test_a_task_by_id_knows_its_spaces_and_time_limit_and_makes_copies():
    task = make("gymnasium:CartPole-v1")
    assert isinstance(task, HostTask)
    assert (task.max_steps, task.observation_space.shape, task.action_space.n) == (500, (4,), 2)
    vector = task.make(3, seed=5)
    first = vector.reset()
    np.testing.assert_array_equal(first, vector.reset(5))
    assert len(np.unique(first[:, 0])) == 3
    assert not (np.isin(vector.reset(6), first)).any()
    step = vector.step(np.array([0, 1, 0]))
    assert step.observation.shape == (3, 4) and step.reward.tolist() == [1, 1, 1]
    vector.close()


def test_the_time_limit_of_a_registered_environment_is_a_truncation_with_its_final_observation():
    vector = make("gymnasium:Pendulum-v1", max_episode_steps=3).make(2)
    vector.reset(0)
    steps = [vector.step(np.zeros((2, 1), np.float32)) for _ in range(4)]
    assert [step.truncated.tolist() for step in steps] == [[False] * 2, [False] * 2, [True] * 2, [False] * 2]
    assert not any(step.terminated.any() for step in steps)
    assert (steps[2].final_observation != steps[2].observation).any(axis=1).all()
    assert steps[2].episode_length.tolist() == [3, 3]


def test_a_ready_environment_gives_a_vector_of_one():
    vector = from_gymnasium(Script([(1.0, [(2.0, 1.0, False, False)])]))
    assert isinstance(vector, HostVectorEnv) and vector.num_envs == 1


def test_a_ready_vector_environment_keeps_its_own_mode():
    vector = from_gymnasium(gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="vector_entry_point"))
    assert (vector.autoreset_mode, vector.num_envs) == (AutoresetMode.NEXT_STEP, 2)
    vector.reset(3)
    rows = [vector.step(np.ones(2, int)) for _ in range(30)]
    ends = np.array([row.ended for row in rows])
    valid = np.array([row.valid for row in rows])
    np.testing.assert_array_equal(valid[1:], ~ends[:-1])
    assert ends.any()


def test_two_vectors_of_one_class_keep_each_its_own_mode():
    # Gymnasium writes the mode into a dict that all environments of a class share.
    first = SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")], autoreset_mode=AutoresetMode.NEXT_STEP)
    SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")], autoreset_mode=AutoresetMode.SAME_STEP)
    assert HostVectorEnv(first).autoreset_mode == AutoresetMode.NEXT_STEP


@pytest.mark.parametrize("given", [3, None, Script])
def test_what_makes_no_environment_is_refused(given):
    expected = "takes an id, a function" if given is not Script else "missing 1 required positional argument"
    with pytest.raises((ConfigError, TypeError), match=expected):
        from_gymnasium(given)


def test_options_without_an_id_are_refused():
    with pytest.raises(ConfigError, match=r"Options go with an id alone, got \['gravity'\]"):
        from_gymnasium(lambda: Script([]), {"gravity": 1})


@pytest.mark.parametrize("number", [0, 1.5, True])
def test_a_wrong_number_of_host_copies_is_refused(number):
    with pytest.raises(ConfigError, match="gymnasium:CartPole-v1 needs num_envs as an integer >= 1"):
        make("gymnasium:CartPole-v1").make(number)
