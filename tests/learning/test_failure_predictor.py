"""The predictor that costs are shaped by."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.learning.failure_predictor import (
    Shaping,
    predict_failures,
    predictor_inputs,
    start_predictor,
)
from dressage.learning.records import Outcome
from dressage.learning.specs import AgentSpec

SHAPING = Shaping(jnp.float32(1.0), jnp.float32(0.05), horizon=2, steps=60, hidden_size=8)
ONE = AgentSpec("a", 1, 2, "discrete", (2,), (), (0,))
FACTORED = AgentSpec("a", 2, 5, "multi_discrete", (2, 3), (2,), (0, 0))
BOX = AgentSpec("a", 1, 2, "continuous", (), (2,), (), 2, (-1.0, -1.0), (1.0, 1.0))
AUGMENTED = AgentSpec("a", 1, 3, "parameterized", (2,), (), (0,), 1, (-np.inf,), (np.inf,))


def outcome(ends, valid=None):
    nothing = np.zeros(np.shape(ends), np.float32)
    return Outcome(None, nothing, nothing, ends, ends, nothing, nothing, valid)


@pytest.mark.parametrize(
    ("spec", "actions", "expected"),
    [
        (ONE, [[1]], [7, 0, 1, 9]),
        (FACTORED, [[[1, 0]]], [7, 7, 0, 1, 1, 0, 0, 9, 9]),
        (BOX, [[[0.5, -2.0]]], [7, 0.5, -2.0, 9]),
        (AUGMENTED, ([[[1]]], [[[3.5]]]), [7, 0, 1, 3.5, 9]),
    ],
)
def test_inputs_are_observation_choices_numbers_and_next_observation(spec, actions, expected):
    actions = tuple(map(jnp.array, actions)) if isinstance(actions, tuple) else jnp.array(actions)
    before, behind = jnp.full((1, 1, spec.obs_dim), 7.0), jnp.full((1, 1, spec.obs_dim), 9.0)
    inputs = predictor_inputs(spec, before, actions, behind)
    np.testing.assert_array_equal(inputs[0, 0], expected)
    params, _ = start_predictor(SHAPING, jax.random.key(0), spec)
    assert params["params"]["Dense_0"]["kernel"].shape == (len(expected), 8)


@pytest.fixture(scope="module")
def predict():
    return jax.jit(lambda *arguments: predict_failures(SHAPING, *arguments))


@pytest.fixture(scope="module")
def rollout():
    """Features tell a dangerous step (its second half ends in a cost) from a harmless one."""
    danger = np.tile([1, 1, 0, 0], 6)[:, None]
    costs = np.tile([0, 1, 0, 0], 6)[:, None].astype(np.float32)
    ends = np.tile([0, 1, 0, 1], 6)[:, None] > 0
    features = danger[..., None].astype(np.float32)
    inputs = predictor_inputs(ONE, features, jnp.zeros((24, 1), jnp.int32), features)
    return inputs, costs, ends, danger


def test_it_learns_which_steps_are_soon_followed_by_a_cost(predict, rollout):
    inputs, costs, ends, danger = rollout
    start = start_predictor(SHAPING, jax.random.key(0), ONE)
    after = predict(*start, inputs, costs, outcome(ends))
    assert (after.probabilities[danger > 0] > 0.8).all()
    assert (after.probabilities[danger == 0] < 0.2).all()
    assert after.label_rate == pytest.approx(0.5)
    assert after.loss < 0.25


def test_rows_that_are_no_samples_teach_nothing_and_are_predicted_nothing(predict, rollout):
    inputs, costs, ends, _ = rollout
    valid = np.ones_like(ends)
    valid[4:8] = False
    start = start_predictor(SHAPING, jax.random.key(0), ONE)
    clean = predict(*start, inputs, costs, outcome(ends, valid))
    other = predict(*start, inputs, np.where(valid, costs, 9.0), outcome(ends, valid))
    np.testing.assert_array_equal(clean.probabilities, other.probabilities)
    np.testing.assert_array_equal(clean.probabilities[4:8], np.zeros((4, 1)))
