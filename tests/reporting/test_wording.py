"""Numbers in words, with their singular and with nothing where nothing is known."""

import math

import pytest

from dressage.reporting.wording import describe_count, describe_rate, describe_unfinished


@pytest.mark.parametrize(("count", "text"), [(0, "0 updates"), (1, "1 update"), (4096, "4,096 updates")])
def test_a_count_agrees_with_its_noun(count, text):
    assert describe_count(count, "update") == text


@pytest.mark.parametrize(("rate", "text"), [(12_345.6, "12,346 steps/s"), (math.nan, ""), (None, "")])
def test_a_speed_that_was_not_measured_is_not_told(rate, text):
    assert describe_rate(rate) == text


def test_unfinished_episodes_are_told_in_the_right_number():
    assert describe_unfinished(0) == ""
    assert describe_unfinished(1) == "1 evaluation episode did not finish and is left out."
    assert describe_unfinished(2) == "2 evaluation episodes did not finish and are left out."
