"""Observations and actions of groups: flattened as Gymnasium does, masks apart, actions within spaces."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from dressage.errors import CheckpointError, EnvironmentContractError, UnsupportedSpaceError
from dressage.learning.group_spaces import GroupSpaces
from dressage.learning.policy_head import PolicyHead
from dressage.learning.space_files import space_from_json, space_to_json
from dressage.workers import make_workers
from dressage.workers.layout import observation_layout

TWO = spaces.Discrete(2)
LEAVES = st.one_of(
    st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 4), st.integers(-3, 3)),
    st.builds(spaces.MultiDiscrete, st.lists(st.integers(1, 3), min_size=1, max_size=3)),
    st.builds(spaces.MultiBinary, st.sampled_from([1, 3, (2, 2)])),
    st.builds(
        lambda shape, dtype: spaces.Box(0, 200, shape, dtype),
        st.sampled_from([(), (1,), (2, 3)]),
        st.sampled_from([np.uint8, np.float64, np.float32, np.int64]),
    ),
)
SPACES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.dictionaries(st.sampled_from("bca"), inner, min_size=1, max_size=3).map(spaces.Dict),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: spaces.Tuple(tuple(parts))),
    ),
    max_leaves=4,
)


@given(SPACES, st.integers(0, 2**31 - 1))
def test_observations_of_all_kinds_are_flattened_as_gymnasium_does_in_both_drivers(space, seed):
    space.seed(seed)
    observation = space.sample()
    expected = np.asarray(gymnasium.spaces.flatten(space, observation), np.float32)
    group = GroupSpaces.of(("a",), space, TWO)
    assert group.spec.obs_dim == expected.size
    with jax.disable_jit():
        np.testing.assert_array_equal(group.observe(observation).features, expected)
    layout, row = observation_layout("a", space), np.zeros(expected.size, np.float32)
    layout.write(row, observation)
    np.testing.assert_array_equal(row, expected)


@given(SPACES)
def test_a_space_read_back_from_json_is_equal(space):
    import json

    text = json.dumps(space_to_json(space), allow_nan=False)
    again = space_from_json(json.loads(text))
    assert again == space and again.dtype == space.dtype


def test_what_describes_no_space_is_refused():
    with pytest.raises(UnsupportedSpaceError, match="cannot be described in a file"):
        space_to_json(spaces.Text(3))
    with pytest.raises(CheckpointError, match="This describes no space"):
        space_from_json({"kind": "Cube"})


def test_bytes_do_not_wrap_and_large_numbers_keep_their_size():
    group = GroupSpaces.of(("a",), spaces.Box(0, 255, (2, 2), np.uint8), TWO)
    features = group.observe(np.array([[250, 10], [0, 255]], np.uint8)).features
    assert features.dtype == jnp.float32
    np.testing.assert_array_equal(features, [250, 10, 0, 255])
    assert float(features[0] + features[1]) == 260
    group = GroupSpaces.of(("a",), spaces.Box(-1e10, 1e10, (), np.float64), TWO)
    assert group.spec.obs_dim == 1
    assert float(group.observe(np.float64(1e10)).features[0]) == pytest.approx(1e10)


def test_the_order_of_a_returned_dict_does_not_matter():
    space = spaces.Dict({"b": spaces.Box(0, 9, (2,)), "a": spaces.Box(0, 9, ())})
    group = GroupSpaces.of(("a",), space, TWO)
    one = {"b": np.array([1.0, 2.0], np.float32), "a": np.float32(3.0)}
    other = dict(reversed(one.items()))
    np.testing.assert_array_equal(group.observe(one).features, [3, 1, 2])
    np.testing.assert_array_equal(group.observe(other).features, [3, 1, 2])


def test_an_observation_of_nothing_is_refused_by_agent_and_space():
    for space in (spaces.Box(0, 1, (0,)), spaces.Text(3), spaces.Dict()):
        with pytest.raises(UnsupportedSpaceError, match="Agent 'a' observes"):
            GroupSpaces.of(("a",), space, TWO)


@pytest.mark.parametrize("wrong", [np.zeros(2), np.zeros((3, 1)), np.float32(1.0), {"x": np.zeros(3)}])
def test_an_observation_of_another_shape_is_an_error_with_agent_and_both_shapes(wrong):
    class Wrong(Recorder):
        def observe(self):
            return wrong

    with (
        make_workers(lambda: Wrong({"a": TWO}), 1) as group,
        pytest.raises(
            EnvironmentContractError, match="the observation of agent 'a' has shape|needs a real number"
        ),
    ):
        group.reset([0])


ACTIONS = {
    "discrete": spaces.Discrete(3, start=-1),
    "certain": spaces.Discrete(1, start=2),
    "factored": spaces.MultiDiscrete([2, 3], start=[1, -1]),
    "grid": spaces.MultiDiscrete([[2, 3], [4, 5]]),
    "bits": spaces.MultiBinary(3),
    "box": spaces.Box(-1.0, 1.0, (3,), np.float32),
    "wide": spaces.Box(-2.0, 5.0, (), np.float64),
    "hybrid": spaces.Dict(kind=spaces.Discrete(2, start=1), raw=spaces.Box(-np.inf, np.inf, (2,))),
    "pair": spaces.Tuple((spaces.MultiDiscrete([3, 2]), spaces.Box(-np.inf, np.inf, (1,)))),
}


class Recorder:
    """Takes actions for ever and keeps them."""

    def __init__(self, actions=ACTIONS):
        self.possible_agents = list(actions)
        self.actions, self.sent = actions, []

    def observation_space(self, agent):
        return spaces.Box(-1, 1, (3,))

    def action_space(self, agent):
        return self.actions[agent]

    def observe(self):
        return np.zeros(3, np.float32)

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        return {agent: self.observe() for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions):
        self.sent.append(actions)
        seen = {agent: self.observe() for agent in self.agents}
        flags = dict.fromkeys(self.agents, False)
        return seen, dict.fromkeys(self.agents, 0.0), flags, dict(flags), {agent: {} for agent in self.agents}

    def close(self):
        pass


def test_a_thousand_sampled_actions_of_each_kind_lie_in_their_space():
    env = Recorder()
    drawn = []
    for name, space in ACTIONS.items():
        head = PolicyHead(GroupSpaces.of((name,), env.observation_space(name), space).spec)
        spread = jnp.zeros((1000, head.spec.continuous_dim)) if head.spec.continuous_dim else None
        distribution = head.distribution((jnp.zeros((1000, head.spec.action_dim)), spread), None)
        taken = head.environment_action(distribution.sample(jax.random.key(1)))
        drawn.append(jax.tree.map(np.asarray, taken))
    with make_workers(lambda: env, 1) as group:
        order = [one.agents[0] for one in group.layout.groups]
        assert order == list(ACTIONS)
        group.reset([0])
        for row in range(1000):
            group.step([jax.tree.map(lambda leaf, row=row: leaf[row][None, None], one) for one in drawn])
    assert len(env.sent) == 1000
    for actions in env.sent:
        for name, action in actions.items():
            assert ACTIONS[name].contains(action), (name, action)
    kinds = {int(actions["discrete"]) for actions in env.sent}
    assert kinds == {-1, 0, 1}
    assert {int(actions["certain"]) for actions in env.sent} == {2}
    assert {tuple(actions["factored"].tolist()) for actions in env.sent} == {
        (first, second) for first in (1, 2) for second in (-1, 0, 1)
    }
