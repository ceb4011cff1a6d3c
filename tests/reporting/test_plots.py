"""Curves: what line and band are, and figures that several runs share."""

import imageio.v3 as imageio
import numpy as np
import pytest

from dressage.reporting.figures import COLOURS
from dressage.reporting.metric_rows import read_rows
from dressage.reporting.plots import (
    agent_curves,
    diagnostics_svg,
    learning_curve,
    write_learning_curves,
)
from tests.reporting.fabricated_run import fabricate

EVALUATION = {"kind": "eval", "updates": 1, "time_s": 0.0, "steps_per_second": 0.0}


def test_one_seed_is_drawn_with_the_deviation_over_its_episodes():
    rows = [EVALUATION | {"steps": 64, "eval/returns": [1.0, 3.0, None]}]
    curve = learning_curve("run", rows)
    assert (curve.steps[0], curve.centre[0], curve.low[0], curve.high[0]) == (64.0, 2.0, 1.0, 3.0)
    assert curve.meaning == "mean ± std of evaluation episodes"


def test_several_seeds_are_drawn_with_the_interval_of_their_interquartile_mean():
    rows = [EVALUATION | {"steps": 64, "eval/returns": [[1.0, 3.0], [4.0, 4.0], [6.0, 6.0], [99.0, 99.0]]}]
    curve = learning_curve("run", rows)
    assert curve.centre[0] == 5.0
    assert 2.0 <= curve.low[0] < 5.0 < curve.high[0] <= 99.0
    assert "interquartile mean of 4 seeds" in curve.meaning


def test_a_run_without_evaluations_is_drawn_from_its_training_episodes():
    places = [{"kind": "train", "updates": n, "steps": 10 * n, "time_s": 0.0} for n in (1, 2, 3)]
    values = (None, [1.0, 3.0], [None, 4.0])
    rows = [place | {"train/episode_return": value} for place, value in zip(places, values, strict=True)]
    curve = learning_curve("run", rows)
    np.testing.assert_array_equal(curve.steps, [20.0, 30.0])
    np.testing.assert_array_equal(curve.centre, [2.0, 4.0])
    np.testing.assert_array_equal(curve.low, [1.0, 4.0])


def test_a_figure_of_many_runs_is_written(tmp_path):
    rows = read_rows(fabricate(tmp_path / "run").metrics)
    curves = [learning_curve(f"run {index}", rows) for index in range(len(COLOURS) + 1)]
    write_learning_curves(tmp_path / "curves.png", curves, "pendulum")
    picture = imageio.imread(tmp_path / "curves.png")
    assert picture.shape[:2] == (672, 1152)
    assert picture.std() > 0.0


def test_diagnostics_leave_out_what_was_not_measured(tmp_path):
    rows = read_rows(fabricate(tmp_path / "run", seeds=(0, 1)).metrics)
    drawing = diagnostics_svg(rows)
    assert drawing.startswith("<svg")
    assert drawing.count('id="axes_') == 6


@pytest.mark.parametrize("rows", [[], [EVALUATION | {"steps": 1, "eval/returns": [1.0]}]])
def test_without_training_metrics_there_are_no_diagnostics(rows):
    assert diagnostics_svg(rows) == ""


def test_each_of_several_agents_has_a_curve_of_its_mean_over_the_seeds(tmp_path):
    rows = [
        EVALUATION
        | {"steps": steps, "eval/returns": [[1.0], [3.0]], "eval/return_mean": [1.0, 3.0]}
        | {"eval/return_mean/left": [steps, 3.0 * steps], "eval/return_mean/right": [None, 7.0]}
        for steps in (10, 20)
    ]
    left, right = agent_curves(rows)
    assert (left.label, right.label) == ("left", "right")
    np.testing.assert_array_equal(left.steps, [10.0, 20.0])
    np.testing.assert_array_equal(left.centre, [20.0, 40.0])
    np.testing.assert_array_equal(right.centre, [7.0, 7.0])
    write_learning_curves(tmp_path / "c.png", [learning_curve("run", rows)], "run", [left, right])
    assert (tmp_path / "c.png").stat().st_size > 1000


def test_a_run_of_one_agent_has_no_curves_of_agents():
    assert agent_curves([EVALUATION | {"steps": 64, "eval/returns": [1.0], "eval/return_mean": 1.0}]) == []
