"""Copies on the host in parts: cut, joined, and who rests."""

import os

import numpy as np
import pytest

from dressage.learning.host_env import join_copies, rest_of_parts, split_copies
from dressage.learning.host_rollout import first_done


class Part:
    def __init__(self, copies):
        self.copies = copies


@pytest.mark.parametrize(
    ("resting", "rests"), [(0, [0, 0, 0]), (1, [0, 0, 1]), (2, [0, 0, 2]), (4, [0, 2, 2]), (6, [1, 3, 2])]
)
def test_the_last_copies_rest(resting, rests):
    assert rest_of_parts(resting, [Part(2), Part(3), Part(2)]) == rests


def test_records_are_cut_along_the_copies_of_each_group_and_joined_again():
    single, pair = np.arange(10).reshape(5, 2), {"x": np.arange(10).reshape(2, 5)}
    first, second = split_copies((single, pair), (0, 1), (2, 3))
    assert first[0].tolist() == [[0, 1], [2, 3]]
    assert first[1]["x"].tolist() == [[0, 1], [5, 6]]
    assert second[1]["x"].tolist() == [[2, 3, 4], [7, 8, 9]]
    joined = join_copies([first, second], (0, 1))
    assert joined[0].tolist() == single.tolist()
    assert joined[1]["x"].tolist() == pair["x"].tolist()


def test_one_part_is_handed_on_as_it_is():
    records = (np.zeros(3),)
    assert split_copies(records, (0,), (3,)) == [records]
    assert join_copies([records], (0,)) is records


class Sent:
    def __init__(self, descriptor):
        self.descriptor = descriptor


def test_the_part_that_is_done_goes_before_those_sent_out_earlier():
    pipes = [os.pipe() for _ in range(3)]
    parts = [Sent(reader) for reader, _ in pipes]
    for index in (2, 1):
        os.write(pipes[index][1], b"d")
        assert first_done(parts) is parts[index]  # Of two that are done, the one sent out first.
    assert first_done(parts[:1]) is parts[0]
    for pipe in pipes:
        for end in pipe:
            os.close(end)


def test_parts_whose_end_nothing_tells_take_turns():
    parts = [Sent(None), Sent(None)]
    assert first_done(parts) is parts[0]
