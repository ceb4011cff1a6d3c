"""What several steps brought, counted up once they are over."""

import numpy as np
import pytest

from dressage.workers import make_workers
from dressage.workers.history import running_sums
from tests.workers.parallel_toys import Counting


def one_by_one(open_sums, steps, over):
    """Add step by step."""
    sums, told = open_sums.copy(), []
    for number, ends in zip(steps, over, strict=True):
        sums += number
        told.append(sums.copy())
        sums[ends] = 0
    return np.array(told), sums


@pytest.mark.parametrize("often", [0.0, 0.05, 0.5, 1.0])
@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_running_sums_are_those_of_adding_step_by_step_to_the_last_bit(often, dtype):
    generator = np.random.default_rng(0)
    steps = (100 * generator.normal(size=(50, 2, 3))).astype(np.float32)
    steps = steps if dtype is np.float64 else steps > 0
    over = generator.random(steps.shape) < often
    before = (10 * generator.normal(size=(2, 3))).astype(dtype)
    told, after = one_by_one(before, steps, over)
    sums = running_sums(before, steps, over)
    assert sums.dtype == dtype
    np.testing.assert_array_equal(sums, told)
    np.testing.assert_array_equal(before, after)


def test_an_end_may_be_that_of_all_agents_of_a_copy():
    steps, over = np.ones((4, 2, 2)), np.array([[0, 0], [1, 0], [0, 0], [0, 1]], bool)
    sums = running_sums(np.zeros((2, 2)), steps, over[:, None])
    assert sums[:, 0].tolist() == sums[:, 1].tolist() == [[1, 1], [2, 2], [1, 3], [2, 4]]


def test_steps_that_are_kept_together_count_as_they_do_one_by_one():
    with make_workers(Counting, 3) as one, make_workers(Counting, 3) as other:
        for group in (one, other):
            group.reset([0, 1, 2])
        taken = [np.zeros((1, 3), np.int64), np.zeros((1, 3, 2))]
        singly = [one.step(taken, resting=step % 2) for step in range(9)]
        history = other.history(9)
        for step in range(9):
            other.send(taken, step % 2)
            other.receive_into(history)
        counted = other.count(history)
    assert any(step.ended.any() for step in singly)
    np.testing.assert_array_equal(history.ended, [step.ended for step in singly])
    for group, (steps, totals) in enumerate(zip(history.groups, counted, strict=True)):
        rows = [step.groups[group] for step in singly]
        np.testing.assert_array_equal(totals.returns, [row.episode_return for row in rows])
        np.testing.assert_array_equal(totals.lengths, [row.episode_length for row in rows])
        np.testing.assert_array_equal(steps.final_observation, [row.final_observation for row in rows])
