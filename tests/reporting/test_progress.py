"""Progress: a live bar on a terminal, lines elsewhere, and words that people use."""

import io
import math

import numpy as np
import pytest
from rich.console import Console

from dressage.reporting.progress import PlainProgress, RichProgress, Status, describe_return, open_progress
from dressage.reporting.seed_statistics import summarize_returns
from dressage.reporting.wording import describe_count, describe_duration, describe_number, describe_unfinished

SUMMARY = summarize_returns(np.array([[-200.0, -100.0]]))


def status(steps, time_left=12.0):
    return Status(steps, 1000, 2500.0, time_left, -300.0)


def console_into(target, *, terminal=False):
    return Console(file=target, width=100, force_terminal=terminal, color_system=None)


def test_without_a_terminal_every_evaluation_is_a_line():
    target = io.StringIO()
    view = open_progress(console_into(target))
    view.start(status(0, math.nan))
    view.advance(status(100))
    view.evaluated(status(500), SUMMARY)
    view.stop()
    assert target.getvalue().splitlines() == [
        "0 of 1,000 steps; compiling ...",
        " 50 %  500 steps  2,500 steps/s  12 s left  return -150.0 ± 50.0",
    ]


def test_between_evaluations_a_line_comes_only_after_some_time():
    target, now = io.StringIO(), [0.0]
    view = PlainProgress(console_into(target), interval_s=10.0, clock=lambda: now[0])
    for now[0] in (3.0, 9.0, 11.0, 15.0, 22.0):
        view.advance(status(int(now[0]) * 10))
    assert [line.split()[2] for line in target.getvalue().splitlines()] == ["110", "220"]


def test_quiet_shows_only_what_is_said():
    target = io.StringIO()
    view = open_progress(console_into(target), quiet=True)
    view.start(status(0))
    view.advance(status(100))
    view.evaluated(status(100), SUMMARY)
    view.say("[LR] is what it is")
    assert target.getvalue() == "[LR] is what it is\n"


def test_on_a_terminal_a_bar_shows_steps_speed_return_and_time_left():
    target = io.StringIO()
    view = open_progress(console_into(target, terminal=True))
    assert isinstance(view, RichProgress)
    view.start(status(0, math.nan))
    view.advance(status(100))
    view.evaluated(status(500), SUMMARY)
    view.say("a word")
    view.stop()
    shown = target.getvalue()
    assert "compiling ..." in shown
    for part in ("  500 / 1,000 steps", "2,500 steps/s", "12 s left", "return -150.0 ± 50.0", "a word"):
        assert part in shown


def test_unfinished_episodes_are_told():
    assert describe_return(summarize_returns(np.array([[5.0, math.nan]]))) == "5 ± 0 (1 unfinished)"
    assert describe_unfinished(0) == ""
    assert describe_unfinished(1) == "1 evaluation episode did not finish and is left out."
    assert describe_unfinished(2) == "2 evaluation episodes did not finish and are left out."


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (4.84, "4.8 s"),
        (48.2, "48 s"),
        (200, "3 min 20 s"),
        (59.9, "1 min 00 s"),
        (7500, "2 h 05 min"),
        (math.nan, "?"),
    ],
)
def test_durations_are_told_as_people_say_them(seconds, text):
    assert describe_duration(seconds) == text


def test_numbers_and_counts_have_the_digits_that_matter():
    assert [describe_number(value) for value in (0.12345, -3.0, 1234.56, math.nan)] == [
        "0.123",
        "-3",
        "1,234.6",
        "-",
    ]
    assert (describe_count(1, "seed"), describe_count(2000, "seed")) == ("1 seed", "2,000 seeds")
