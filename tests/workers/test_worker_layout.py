"""How spaces of every kind lie in arrays, and that every action sent lies in its space."""

import numpy as np
import pytest
from gymnasium import spaces

from dressage.errors import ConfigError, EnvironmentContractError, UnsupportedSpaceError
from dressage.workers import make_workers, parallel_layout
from tests.workers.parallel_toys import Scripted, make_pendulum

OBSERVATIONS = [
    spaces.Box(0, 255, (2, 2), np.uint8),
    spaces.Box(-1e10, 1e10, (3,), np.float64),
    spaces.Box(-1, 1, (), np.float32),
    spaces.Discrete(4, start=2),
    spaces.MultiDiscrete([2, 3], start=[1, -1]),
    spaces.MultiBinary(3),
    spaces.Dict({"b": spaces.Box(-1, 1, (2,)), "a": spaces.Box(-1, 1, ())}),
    spaces.Tuple((spaces.Discrete(3), spaces.Dict({"x": spaces.Box(0, 9, (2,), np.uint8)}))),
]

ACTIONS = [
    spaces.Discrete(3, start=-1),
    spaces.MultiDiscrete([[2, 3], [4, 5]]),
    spaces.MultiDiscrete([2, 3], start=[1, -1]),
    spaces.MultiBinary(3),
    spaces.Box(-1, 1, (3,)),
    spaces.Box(-0.3, 0.7, (), np.float64),
    spaces.Tuple((spaces.Discrete(2), spaces.Box(-np.inf, np.inf, (2,)))),
    spaces.Dict({"gear": spaces.Discrete(3, start=1), "force": spaces.Box(-1, 1, ())}),
]


class OneAgent(Scripted):
    """Gives random observations of a space and checks each action against another."""

    def __init__(self, observation, action):
        super().__init__([[]], ["a"], {"a": observation}, {"a": action})
        self.given = []

    def reset(self, seed=None, options=None):
        self.observation_spaces["a"].seed(seed)
        self.agents = ["a"]
        return self.observe(), {"a": {}}

    def observe(self):
        self.given.append(self.observation_spaces["a"].sample())
        return {"a": self.given[-1]}

    def step(self, actions):
        assert self.action_space("a").contains(actions["a"]), actions
        self.sent.append(actions["a"])
        return self.observe(), {"a": 0.0}, {"a": False}, {"a": False}, {"a": {}}


def stacked(space, value):
    """Give a sample the axes of one agent and one copy."""
    if isinstance(space, spaces.Dict):
        return {name: stacked(part, value[name]) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(stacked(part, one) for part, one in zip(space.spaces, value, strict=True))
    return np.asarray(value)[None, None]


@pytest.mark.parametrize("space", OBSERVATIONS, ids=str)
def test_observations_are_flattened_as_gymnasium_does(space):
    env = OneAgent(space, spaces.Discrete(2))
    group = make_workers(lambda: env, 1, parallel_layout(OneAgent(space, spaces.Discrete(2))))
    rows = [group.reset([3])[0].features]
    rows += [group.step([np.zeros((1, 1), np.int64)]).groups[0].observation.features for _ in range(20)]
    for given, row in zip(env.given, rows, strict=True):
        # Gymnasium's flatten reads Discrete and MultiDiscrete as if they began at 0.
        np.testing.assert_array_equal(row[0, 0], spaces.flatten(space, given).astype(np.float32))
    assert rows[0].dtype == np.float32


@pytest.mark.parametrize("space", ACTIONS, ids=str)
def test_a_thousand_actions_arrive_in_their_space(space):
    env = OneAgent(spaces.Box(-1, 1, (1,)), space)
    group = make_workers(lambda: env, 1, parallel_layout(env))
    group.reset([0])
    space.seed(1)
    for _ in range(1000):
        action = space.sample()
        given = stacked(space, action)
        group.step([given])
        np.testing.assert_array_equal(spaces.flatten(space, env.sent[-1]), spaces.flatten(space, action))


def test_agents_with_equal_spaces_share_a_group():
    box = {name: spaces.Box(-1, 1, (2,)) for name in ("a", "b")}
    observed = {"a": box["a"], "c": spaces.Discrete(2), "b": box["b"]}
    acted = dict.fromkeys(("a", "c", "b"), spaces.Discrete(2))
    env = OneAgent(box["a"], acted["a"])
    env.possible_agents, env.observation_spaces, env.action_spaces = ["a", "c", "b"], observed, acted
    layout = parallel_layout(env)
    assert [group.agents for group in layout.groups] == [("a", "b"), ("c",)]
    assert [group.observation.size for group in layout.groups] == [2, 2]
    apart = parallel_layout(env, groups=[["a"], ["c"], ["b"]])
    assert [group.agents for group in apart.groups] == [("a",), ("c",), ("b",)]
    with pytest.raises(ConfigError, match="equal spaces only: 'c' differs from 'a'"):
        parallel_layout(env, groups=[["a", "c"], ["b"]])
    with pytest.raises(ConfigError, match="must name each of"):
        parallel_layout(env, groups=[["a", "b"]])


class Masked(OneAgent):
    """Tells which choices are legal, in the observation or in the info."""

    def __init__(self, where, mask=(1, 0, 1)):
        box = spaces.Box(-1, 1, (2,))
        with_mask = spaces.Dict({"action_mask": spaces.MultiBinary(3), "observation": box})
        super().__init__(with_mask if where == "observation" else box, spaces.Discrete(3, start=1))
        self.where, self.mask = where, np.array(mask, np.int8)

    def info(self):
        return {"a": {"action_mask": self.mask} if self.where == "info" else {}}

    def reset(self, seed=None, options=None):
        observations, _ = super().reset(seed)
        return observations, self.info()

    def observe(self):
        observations = super().observe()
        if self.where == "observation":
            observations["a"]["action_mask"] = self.mask
        return observations

    def step(self, actions):
        return (*super().step(actions)[:4], self.info())


@pytest.mark.parametrize("where", ["observation", "info"])
def test_action_masks_come_with_the_observation_that_they_are_about(where):
    env = Masked(where)
    group = make_workers(lambda: env, 1, parallel_layout(env))
    assert group.layout.groups[0].observation.size == 2
    assert group.reset([0])[0].action_mask.tolist() == [[[True, False, True]]]
    env.mask = np.array([0, 1, 0], np.int8)
    step = group.step([np.ones((1, 1), np.int64)]).groups[0]
    assert step.action_mask.tolist() == [[[False, True, False]]]


@pytest.mark.parametrize(
    ("mask", "words"),
    [((0, 0, 0), "action mask of agent 'a' leaves it no legal choice"), ((1, 1), "has 2 entries, needs 3")],
)
def test_a_mask_that_leaves_nothing_or_is_of_another_length_is_an_error(mask, words):
    group = make_workers(lambda: Masked("info", mask), 1, parallel_layout(Masked("info")))
    with pytest.raises(EnvironmentContractError, match=f"copy 0, step 0 .*{words}"):
        group.reset([0])


def test_a_category_out_of_range_is_an_error_with_the_range():
    env = OneAgent(spaces.Discrete(4, start=2), spaces.Discrete(2))
    layout = parallel_layout(env)
    env.observe = lambda: {"a": 6}
    with pytest.raises(
        EnvironmentContractError, match="observation of agent 'a' is 6; its space holds 2 to 5"
    ):
        make_workers(lambda: env, 1, layout).reset([0])


def test_an_observation_without_one_of_its_parts_is_an_error():
    env = OneAgent(OBSERVATIONS[6], spaces.Discrete(2))
    layout = parallel_layout(env)
    env.observe = lambda: {"a": {"a": 0.0}}
    with pytest.raises(EnvironmentContractError, match="observation of agent 'a' has no part 'b'"):
        make_workers(lambda: env, 1, layout).reset([0])


def test_spaces_that_are_not_supported_are_refused_with_the_agent():
    with pytest.raises(UnsupportedSpaceError, match="Agent 'a' observes Sequence"):
        parallel_layout(OneAgent(spaces.Sequence(spaces.Discrete(2)), spaces.Discrete(2)))
    with pytest.raises(UnsupportedSpaceError, match="Agent 'a' acts in Text"):
        parallel_layout(OneAgent(spaces.Discrete(2), spaces.Text(4)))
    with pytest.raises(UnsupportedSpaceError, match=r"Agent 'a' observes Box\(.*\(0,\)"):
        parallel_layout(OneAgent(spaces.Box(-1, 1, (0,)), spaces.Discrete(2)))


def test_an_environment_without_possible_agents_is_refused():
    with pytest.raises(EnvironmentContractError, match="has no possible_agents"):
        parallel_layout(object())


def test_a_gymnasium_environment_steps_as_one_agent():
    import gymnasium

    alone = gymnasium.make("Pendulum-v1")
    expected = alone.reset(seed=4)[0]
    with make_workers(make_pendulum, 2) as group:
        first = group.reset([4, 5])[0]
        np.testing.assert_array_equal(first.features[0, 0], expected)
        for number in range(201):
            step = group.step([np.full((1, 2, 1), 0.5)])
            expected, reward, _, truncated, _ = alone.step(np.array([0.5], np.float32))
            np.testing.assert_array_equal(step.groups[0].final_observation[0, 0], expected)
            assert step.groups[0].reward[0, 0] == np.float32(reward)
            assert bool(step.ended[0]) is truncated is (number == 199)
            expected = alone.reset()[0] if truncated else expected
            np.testing.assert_array_equal(step.groups[0].observation.features[0, 0], expected)
