"""Spaces: samples are contained, what lies outside is not, and both faces agree with Gymnasium."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dressage.envs.spaces import Box, Discrete, MultiDiscrete, as_space, size
from dressage.errors import UnsupportedSpaceError

FEW = settings(max_examples=15)
finite = st.floats(-(2.0**100), 2.0**100, width=32)


@st.composite
def boxes(draw):
    """Boxes of any bounds: finite, infinite on one side, both sides, equal."""
    number = draw(st.sampled_from([1, 3]))  # each new shape is compiled anew
    pairs = [sorted((draw(finite), draw(finite))) for _ in range(number)]
    low, high = np.array(pairs, np.float32).T
    low = np.where(draw(st.lists(st.booleans(), min_size=number, max_size=number)), -np.inf, low)
    high = np.where(draw(st.lists(st.booleans(), min_size=number, max_size=number)), np.inf, high)
    return Box(low, high)


integer_boxes = st.tuples(
    st.sampled_from(["uint8", "int8", "int32"]), st.integers(0, 100), st.integers(0, 27)
).map(lambda args: Box(args[1], args[1] + args[2], (2, 2), args[0]))
discretes = st.tuples(st.integers(1, 50), st.integers(-60, 60)).map(lambda args: Discrete(*args))
multi_discretes = st.lists(st.tuples(st.integers(1, 9), st.integers(-5, 5)), min_size=1, max_size=4).map(
    lambda pairs: MultiDiscrete(*np.array(pairs).T)
)


@FEW
@given(st.one_of(boxes(), integer_boxes, discretes, multi_discretes), st.integers(0, 2**31 - 1))
def test_a_sample_is_contained_here_and_by_gymnasium(space, seed):
    sample = space.sample(jax.random.key(seed))
    assert bool(space.contains(sample))
    peer = space.to_gymnasium()
    array = np.asarray(sample).astype(peer.dtype)
    assert peer.contains(array if array.shape else peer.dtype.type(array))


@FEW
@given(st.one_of(boxes(), integer_boxes, discretes, multi_discretes))
def test_gymnasium_and_back_is_the_same_space(space):
    assert as_space(space.to_gymnasium()) == space
    assert as_space(space) is space


@FEW
@given(st.one_of(boxes(), discretes, multi_discretes))
def test_a_space_goes_through_compiled_code_as_a_pytree(space):
    passed = jax.jit(lambda given: given)(space)
    assert passed == space
    assert jax.tree.structure(passed) == jax.tree.structure(space)


@FEW
@given(discretes)
def test_a_discrete_space_ends_before_start_plus_n(space):
    assert not space.contains(space.start - 1)
    assert bool(space.contains(space.start)) and bool(space.contains(space.start + space.n - 1))
    assert not space.contains(space.start + space.n)


@pytest.mark.parametrize(
    ("space", "outside"),
    [
        (Box(-1.0, 1.0, (2,)), np.float32([0, 1.5])),
        (Box(-1.0, 1.0, (2,)), np.float32([0, np.nan])),
        (Box(-1.0, 1.0, (2,)), np.zeros(3, np.float32)),
        (Box(-1.0, 1.0, ()), np.zeros(1, np.float32)),
        (Box(0, 255, (2,), np.uint8), np.zeros(2, np.float32)),
        (Discrete(3), 1.0),
        (Discrete(3), np.zeros(1, int)),
        (MultiDiscrete([2, 3]), np.array([2, 0])),
        (MultiDiscrete([2, 3]), np.array([0.0, 0.0])),
        (MultiDiscrete([2, 3]), np.array(0)),
    ],
    ids=str,
)
def test_wrong_values_shapes_and_types_are_not_contained(space, outside):
    assert not space.contains(outside)


def test_samples_of_a_bounded_box_are_uniform():
    samples = jax.vmap(Box(-2.0, 5.0, ()).sample)(jax.random.split(jax.random.key(0), 4000))
    # Mean 1.5 and deviation 7/√12 of the uniform draw.
    np.testing.assert_allclose([samples.mean(), samples.std()], [1.5, 7 / np.sqrt(12)], atol=0.1)


def test_integer_boxes_are_sampled_up_to_their_upper_bound():
    samples = jax.vmap(Box(253, 255, (), np.uint8).sample)(jax.random.split(jax.random.key(0), 200))
    assert set(samples.tolist()) == {253, 254, 255} and samples.dtype == np.uint8


def test_sampling_covers_every_value_from_the_start_on():
    samples = jax.vmap(Discrete(3, start=-1).sample)(jax.random.split(jax.random.key(0), 200))
    assert set(samples.tolist()) == {-1, 0, 1}
    pairs = jax.vmap(MultiDiscrete([2, 3], [1, -1]).sample)(jax.random.split(jax.random.key(0), 300))
    assert {tuple(pair) for pair in pairs.tolist()} == {(a, b) for a in (1, 2) for b in (-1, 0, 1)}


def test_bounds_may_be_traced():
    @jax.jit
    def inside(limit):
        space = Box(-limit, limit, (2,))
        return space.contains(space.sample(jax.random.key(0))), space.contains(jnp.full(2, limit * 2))

    assert tuple(map(bool, inside(3.0))) == (True, False)


def test_bounds_as_large_as_float32_allows_count_as_none():
    greatest = float(np.finfo(np.float32).max)
    space = Box(np.float32([-greatest, -1]), np.float32([1, greatest]))
    assert space.bounded_below().tolist() == [False, True]
    assert space.bounded_above().tolist() == [True, False]


def test_a_space_of_several_axes_keeps_its_shape():
    space = as_space(gymnasium.spaces.MultiDiscrete([[2, 3], [4, 5]]))
    assert (space.shape, size(space)) == ((2, 2), 4)
    assert space.nvec.tolist() == [[2, 3], [4, 5]]


def test_a_multi_binary_space_becomes_a_multi_discrete_one_of_twos():
    space = as_space(gymnasium.spaces.MultiBinary(3))
    assert (space.nvec.tolist(), space.dtype) == ([2, 2, 2], np.int8)


def test_64_bit_bounds_beyond_32_bits_become_no_bound():
    space = as_space(gymnasium.spaces.Box(-(2**40), 2**40, (1,), np.int64))
    assert (space.low.item(), space.high.item()) == (-(2**31), 2**31 - 1)


@pytest.mark.parametrize("space", [gymnasium.spaces.Text(3), gymnasium.spaces.Dict(), "Box", None])
def test_another_kind_of_space_is_refused_by_name(space):
    with pytest.raises(UnsupportedSpaceError, match="is not supported here. Supported: Box, Discrete"):
        as_space(space)


def test_bounds_that_do_not_fit_the_shape_are_refused():
    with pytest.raises(UnsupportedSpaceError, match=r"shape \(3,\) does not fit the shape \(2,\)"):
        Box(np.zeros(3), np.ones(3), (2,))


@pytest.mark.parametrize(
    "make", [lambda: Discrete(0), lambda: MultiDiscrete([2, 0]), lambda: MultiDiscrete([])]
)
def test_a_space_without_values_is_refused(make):
    with pytest.raises(UnsupportedSpaceError, match="needs"):
        make()


def test_discrete_spaces_can_be_hashed_and_compared():
    assert len({Discrete(2), Discrete(2), Discrete(3), MultiDiscrete([2]), MultiDiscrete([2])}) == 3
    assert Discrete(2) != Discrete(2, start=1)
    assert Box(0, 1, (2,)) != Box(0, 2, (2,))
    assert repr(Box(0, 1, (2,))) == "Box(0.0, 1.0, (2,), float32)"
