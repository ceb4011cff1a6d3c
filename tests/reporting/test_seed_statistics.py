"""Interquartile mean and bootstrap interval, against hand values and SciPy."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from dressage.reporting.seed_statistics import bootstrap_interval, interquartile_mean, summarize_returns

SCORES = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=40)


def test_the_interquartile_mean_of_eight_scores_is_the_mean_of_the_middle_four():
    assert interquartile_mean(np.array([100.0, 1.0, 2.0, 3.0, 4.0, -50.0, 5.0, 6.0])) == 3.5


def test_the_interquartile_mean_of_three_scores_is_their_mean():
    assert interquartile_mean(np.array([0.0, 3.0, 9.0])) == 4.0


@given(SCORES)
def test_the_interquartile_mean_equals_scipys_trimmed_mean(scores):
    expected = scipy.stats.trim_mean(scores, 0.25)
    assert interquartile_mean(np.array(scores)) == pytest.approx(expected, abs=1e-9)


def test_the_bootstrap_interval_agrees_with_scipy():
    scores = np.random.default_rng(3).normal(10.0, 2.0, size=12)
    peer = scipy.stats.bootstrap(
        (scores,), np.mean, method="percentile", n_resamples=20_000, rng=np.random.default_rng(0)
    ).confidence_interval
    low, high = bootstrap_interval(scores[:, None], lambda sample: float(sample.mean()), resamples=20_000)
    assert low == pytest.approx(peer.low, abs=0.05)
    assert high == pytest.approx(peer.high, abs=0.05)


def test_tasks_are_resampled_on_their_own():
    # Each task's two runs are equal, so resampling within a task changes nothing.
    scores = np.array([[1.0, 50.0], [1.0, 50.0]])
    assert bootstrap_interval(scores, lambda sample: float(sample.mean())) == (25.5, 25.5)


def test_one_run_has_no_interval():
    assert all(math.isnan(end) for end in bootstrap_interval(np.array([[3.0]])))


@given(SCORES.filter(lambda scores: len(scores) > 1))
def test_the_interval_lies_within_the_scores_and_repeats(scores):
    column = np.array(scores)[:, None]
    low, high = bootstrap_interval(column, resamples=100)
    assert min(scores) - 1e-9 <= low <= high <= max(scores) + 1e-9
    assert bootstrap_interval(column, resamples=100) == (low, high)


def test_one_seed_is_summarised_over_its_episodes():
    summary = summarize_returns(np.array([[1.0, 3.0, math.nan]]))
    assert (summary.estimate, summary.deviation) == (2.0, 1.0)
    assert (summary.episodes, summary.unfinished) == (2, 1)
    assert not summary.over_seeds
    assert summary.meaning == "mean of 2 episodes, 95 % bootstrap interval"


def test_several_seeds_are_summarised_over_their_means():
    returns = np.array([[0.0, 2.0], [3.0, 3.0], [5.0, 5.0], [40.0, 50.0]])
    summary = summarize_returns(returns)
    assert summary.estimate == 4.0  # of 1, 3, 5, 45 the middle two
    np.testing.assert_array_equal(summary.seed_means, [1.0, 3.0, 5.0, 45.0])
    np.testing.assert_array_equal(summary.seed_deviations, [1.0, 0.0, 0.0, 5.0])
    assert summary.low <= 4.0 <= summary.high
    assert "interquartile mean of 4 seeds" in summary.meaning


def test_a_seed_without_a_finished_episode_is_left_out_of_the_estimate():
    summary = summarize_returns(np.array([[math.nan, math.nan], [4.0, 6.0]]))
    assert summary.estimate == 5.0
    assert math.isnan(summary.seed_means[0])
    assert summary.unfinished == 2


def test_nothing_finished_gives_no_number():
    summary = summarize_returns(np.full((1, 3), math.nan))
    assert math.isnan(summary.estimate)
    assert (summary.episodes, summary.unfinished) == (0, 3)
