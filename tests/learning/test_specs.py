"""Specs of agents and layouts of observations: Gymnasium's own flattening is the peer."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Graph, MultiBinary, MultiDiscrete, Sequence, Text, Tuple
from hypothesis import given, settings
from hypothesis import strategies as st

from dressage.errors import UnsupportedSpaceError
from dressage.learning.policy_head import PolicyHead
from dressage.learning.specs import agent_spec, observation_layout

OBSERVED = Box(-1.0, 1.0, (2,))


def spec_of(space):
    return agent_spec("robot", OBSERVED, space)


# Case G13: space, kind, nvec, shape, start, outputs.
ACTIONS = [
    (Discrete(3, start=-1), "discrete", (3,), (), (-1,), 3),
    (Discrete(1, start=2), "discrete", (1,), (), (2,), 1),
    (MultiDiscrete([2, 3], start=[1, -1]), "multi_discrete", (2, 3), (2,), (1, -1), 5),
    (MultiDiscrete([[2, 3], [4, 5]]), "multi_discrete", (2, 3, 4, 5), (2, 2), (0, 0, 0, 0), 14),
    (MultiBinary(3), "multi_discrete", (2, 2, 2), (3,), (0, 0, 0), 6),
    (MultiBinary((2, 2)), "multi_discrete", (2,) * 4, (2, 2), (0,) * 4, 8),
    (Box(-1.0, 1.0, (3,)), "continuous", (), (3,), (), 3),
    (Box(-1.0, 1.0, ()), "continuous", (), (), (), 1),
    (Box(-1.0, 1.0, (2, 2)), "continuous", (), (2, 2), (), 4),
]
ACTION_IDS = [str(row[0]) for row in ACTIONS]


@pytest.mark.parametrize(("space", "kind", "nvec", "shape", "start", "outputs"), ACTIONS, ids=ACTION_IDS)
def test_an_action_space_gives_the_documented_spec(space, kind, nvec, shape, start, outputs):
    spec = spec_of(space)
    assert (spec.agent_id, spec.obs_dim) == ("robot", 2)
    assert spec.action_kind == kind
    assert spec.action_nvec == nvec
    assert spec.action_shape == shape
    assert spec.action_start == start
    assert spec.action_dim == outputs
    assert spec.continuous_dim == (outputs if kind == "continuous" else 0)
    assert all(type(number) is int for number in (*spec.action_nvec, *spec.action_start, *spec.action_shape))


def test_a_box_keeps_its_bounds_for_each_dimension():
    spec = spec_of(Box(np.float32([-2, 0]), np.float32([5, np.inf])))
    assert spec.action_low == (-2.0, 0.0)
    assert spec.action_high == (5.0, float("inf"))


@pytest.mark.parametrize(
    ("space", "indices", "expected"),
    [
        (Discrete(3, start=-1), 0, -1),
        (Discrete(3, start=-1), 2, 1),
        (Discrete(1, start=2), 0, 2),
        (MultiDiscrete([2, 3], start=[1, -1]), [1, 0], [2, -1]),
        (MultiDiscrete([[2, 3], [4, 5]]), [1, 2, 0, 4], [[1, 2], [0, 4]]),
        (MultiBinary(3), [1, 0, 1], [1, 0, 1]),
    ],
    ids=str,
)
def test_indices_become_the_environments_action_by_adding_the_start_once(space, indices, expected):
    action = PolicyHead(spec_of(space)).environment_action(jnp.array(indices, jnp.int32))
    np.testing.assert_array_equal(action, expected)
    assert jnp.issubdtype(action.dtype, jnp.integer)
    assert space.contains(np.asarray(action).astype(space.dtype))


@pytest.mark.parametrize(
    ("space", "squash"),
    [(row[0], True) for row in ACTIONS] + [(Box(-1.0, 1.0, ()), False), (Box(-1.0, 1.0, (3,)), False)],
    ids=str,
)
def test_a_thousand_sampled_actions_lie_in_the_space(space, squash):
    head = PolicyHead(spec_of(space), squash)
    outputs = (jnp.zeros((1000, head.spec.action_dim)), None)
    if head.spec.continuous_dim:
        outputs = (outputs[0], jnp.full((1000, head.spec.continuous_dim), 1.5))
    noise = head.draw_noise(jax.random.key(0), (1000,))
    actions = np.asarray(head.environment_action(head.distribution(outputs).sample_from(noise)))
    assert actions.shape == (1000, *head.spec.action_shape)
    assert all(space.contains(np.asarray(action, space.dtype)) for action in actions)
    if head.spec.action_kind == "discrete":
        assert set(actions) == set(range(int(space.start), int(space.start + space.n)))


@pytest.mark.parametrize(
    "space", [Text(5), Sequence(Discrete(2)), Box(0, 10, (2,), np.int32), Box(-1.0, 1.0, (0,))], ids=str
)
def test_an_action_space_that_no_policy_serves_is_refused_with_agent_and_space(space):
    with pytest.raises(UnsupportedSpaceError, match="Agent 'robot' acts in") as caught:
        spec_of(space)
    assert str(space) in str(caught.value)
    assert "supported: Discrete, MultiDiscrete" in str(caught.value)


@pytest.mark.parametrize(
    "space",
    [
        Text(5),
        Graph(OBSERVED, None),
        Box(0.0, 1.0, (0,)),
        Box(0.0, 1.0, (2, 0)),
        Dict({}),
        Dict({"fine": OBSERVED, "bad": Text(3)}),
        Tuple([OBSERVED, Tuple([Sequence(Discrete(2))])]),
    ],
    ids=str,
)
def test_an_observation_space_that_cannot_be_flattened_is_refused_with_the_agent(space):
    with pytest.raises(UnsupportedSpaceError, match="Agent 'robot' observes .*supported: Box"):
        agent_spec("robot", space, Discrete(2))


FLOATS = st.sampled_from([(), (1,), (3,), (2, 2)])
STARTS = st.integers(-3, 3)


def boxes():
    floats = FLOATS.map(lambda shape: Box(-5.0, 5.0, shape))
    wide = st.just(Box(-1e10, 1e10, (2,), np.float64))
    pixels = st.just(Box(0, 255, (2, 2), np.uint8))
    return st.one_of(floats, wide, pixels)


def counted():
    discrete = st.builds(lambda n, start: Discrete(n, start=start), st.integers(1, 4), STARTS)
    flat = st.lists(st.tuples(st.integers(1, 4), STARTS), min_size=1, max_size=3).map(
        lambda pairs: MultiDiscrete([n for n, _ in pairs], start=[start for _, start in pairs])
    )
    square = st.builds(lambda a, b: MultiDiscrete([[a, b], [b, a]]), st.integers(1, 3), st.integers(1, 3))
    binary = st.sampled_from([MultiBinary(3), MultiBinary((2, 2))])
    return st.one_of(discrete, flat, square, binary)


def nested(parts):
    named = st.dictionaries(st.sampled_from("zyxab"), parts, min_size=1, max_size=3).map(Dict)
    return st.one_of(named, st.lists(parts, min_size=1, max_size=3).map(Tuple))


SPACES = st.recursive(st.one_of(boxes(), counted()), nested, max_leaves=5)


def stack(samples, space):
    """Batch observations as a vector environment would: the leaves get a leading axis."""
    if isinstance(space, Dict):
        return {name: stack([sample[name] for sample in samples], part) for name, part in space.items()}
    if isinstance(space, Tuple):
        parts = enumerate(space)
        return tuple(stack([sample[index] for sample in samples], part) for index, part in parts)
    return np.stack(samples)


def reversed_order(observation):
    if isinstance(observation, dict):
        return {name: reversed_order(observation[name]) for name in reversed(list(observation))}
    return observation


@settings(max_examples=40)
@given(space=SPACES, seed=st.integers(0, 2**20))
def test_any_nested_space_is_flattened_as_gymnasium_does(space, seed):
    space.seed(seed)
    layout = observation_layout("robot", space)
    samples = [space.sample() for _ in range(3)]
    expected = np.stack([gymnasium.spaces.flatten(space, sample) for sample in samples])
    assert layout.size == gymnasium.spaces.flatdim(space) == expected.shape[1]
    with jax.disable_jit():
        one = layout.flatten(reversed_order(samples[0]))
        batch = layout.flatten(stack(samples, space))
    assert one.dtype == batch.dtype == jnp.float32
    np.testing.assert_allclose(one, expected[0], rtol=1e-6)
    np.testing.assert_allclose(batch, expected, rtol=1e-6)


def test_two_batch_axes_stay_in_front_of_a_nested_observation():
    space = Dict({"b": Box(-1.0, 1.0, (2,)), "a": Discrete(4, start=2), "c": Tuple([MultiBinary(2)])})
    layout = observation_layout("robot", space)
    space.seed(1)
    rows = [[space.sample() for _ in range(3)] for _ in range(2)]
    batch = stack([stack(row, space) for row in rows], space)
    expected = [[gymnasium.spaces.flatten(space, sample) for sample in row] for row in rows]
    flattened = jax.jit(layout.flatten)(batch)
    assert flattened.shape == (2, 3, layout.size)
    np.testing.assert_allclose(flattened, expected, rtol=1e-6)


def test_an_observation_with_a_start_becomes_one_hot_from_that_start():
    layout = observation_layout("robot", Discrete(4, start=2))
    np.testing.assert_array_equal(layout.flatten(3), [0, 1, 0, 0])
    np.testing.assert_array_equal(layout.flatten(jnp.array([2, 5])), [[1, 0, 0, 0], [0, 0, 0, 1]])


def test_pixels_become_float_before_any_arithmetic():
    layout = observation_layout("robot", Box(0, 255, (2, 2), np.uint8))
    flat = layout.flatten(np.array([[250, 1], [2, 3]], np.uint8))
    np.testing.assert_array_equal(flat + 10, [260, 11, 12, 13])


def test_layouts_and_specs_are_hashable_so_that_they_may_be_static():
    space = Dict({"a": Discrete(3), "b": Box(-1.0, 1.0, (2,))})
    assert hash(observation_layout("robot", space)) == hash(observation_layout("robot", space))
    assert agent_spec("robot", space, Discrete(2)) == agent_spec("robot", space, Discrete(2))
