"""Hypothesis strategies for the inputs of the equations.

Shapes are few, so that what a test compiles is compiled once; numbers are many.
"""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

ROLLOUT_SHAPES = ((7,), (7, 3), (7, 3, 2))


def numbers(shape, low=-10.0, high=10.0):
    """Float32 arrays of a shape within bounds; no subnormals, which XLA takes for 0."""
    return hnp.arrays(np.float32, shape, elements=st.floats(low, high, width=32, allow_subnormal=False))


def flags(shape):
    """Boolean arrays of a shape."""
    return hnp.arrays(np.bool_, shape)


@st.composite
def rollouts(draw, shapes=ROLLOUT_SHAPES):
    """Arguments of `compute_gae` by name, both factors included; a termination always ends its episode."""
    shape = draw(st.sampled_from(shapes))
    terminated, truncated = draw(flags(shape)), draw(flags(shape))
    return {
        "rewards": draw(numbers(shape)),
        "bootstrap_dones": terminated,
        "episode_ends": terminated | truncated,
        "values": draw(numbers(shape)),
        "next_values": draw(numbers(shape)),
        "gamma": draw(st.floats(0, 1, width=32)),
        "gae_lambda": draw(st.floats(0, 1, width=32)),
    }


@st.composite
def masks(draw, shape):
    """Masks of categories in which each row allows at least one."""
    mask = draw(flags(shape))
    rescued = draw(hnp.arrays(np.int64, shape[:-1], elements=st.integers(0, shape[-1] - 1)))
    return mask | (np.arange(shape[-1]) == rescued[..., None])


@st.composite
def batch_lists(draw, dimension=2, total=12):
    """One set of samples `[total, dimension]` and the places where it is cut into batches."""
    offset = draw(st.sampled_from([0.0, 100.0, -3000.0]))
    samples = draw(numbers((total, dimension))) + np.float32(offset)
    cuts = sorted(draw(st.sets(st.integers(1, total - 1), max_size=4)))
    return samples, cuts
