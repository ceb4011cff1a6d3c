"""The figure of a run under a limit: what its lines stand for."""

import imageio.v3 as imageio
import numpy as np
import pytest
from matplotlib.colors import to_hex

from dressage.reporting.figures import COLOURS, GREY, agent_lines
from dressage.reporting.limit_plots import Optimum, limit_figure, write_limit_figure

OPTIMUM = Optimum(7.0, 1.4)


def row(updates, values):
    place = {
        "kind": "train",
        "updates": updates,
        "steps": 10 * updates,
        "time_s": 0.0,
        "steps_per_second": 1.0,
    }
    return place | {f"train/{name}": value for name, value in values.items()}


def lagrangian(updates):
    """One agent, two seeds."""
    costs = [1.0 * updates, 3.0 * updates]
    return row(
        updates,
        {
            "episode_return": [2.0, 4.0],
            "episode_cost": costs,
            "cost_limit": [2.5, 2.5],
            "multiplier": [0.0, 1.0],
        },
    )


def steps(updates):
    """Two agents with limits of their own, one seed; of the first update nothing is known of the cost."""
    values = {}
    for name, left, right in (
        ("episode_return", 1.0, 3.0),
        ("episode_cost", None if updates == 1 else 5.0, 7.0),
        ("cost_limit", 4.0, 9.0),
        ("cost_multiplier", 0.5, None),
        ("step_fraction", 1.0, 0.64),
        ("attempts", 1.0, 3.0),
        ("case_unconstrained", 0.0, 0.5),
        ("case_active", 1.0, 0.0),
        ("case_recovery", 0.0, 0.5),
        ("case_stationary", 0.0, 0.0),
    ):
        known = [value for value in (left, right) if value is not None]
        values |= {name: float(np.mean(known)), f"{name}/left": left, f"{name}/right": right}
    return row(updates, values)


def drawn(figure):
    return {axes.get_title(loc="left"): axes for axes in figure.axes}


def line(axes, label):
    (found,) = (one for one in axes.lines if one.get_label() == label)
    return found


def test_limit_optimum_and_dual_stand_where_they_belong():
    panels = drawn(limit_figure([lagrangian(1), lagrangian(2)], "run", OPTIMUM))
    assert len(panels) == 3
    heights = {
        "return of training episodes": ("optimum under the limit", 7.0),
        "cost of training episodes": ("limit", 2.5),
        "price of cost (return a unit)": ("dual of the limit", 1.4),
    }
    for title, (label, height) in heights.items():
        assert set(line(panels[title], label).get_ydata()) == {height}
    np.testing.assert_array_equal(
        panels["cost of training episodes"].lines[0].get_xydata(), [[10, 2], [20, 4]]
    )
    band = panels["cost of training episodes"].collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == (1.0, 6.0)


def test_without_an_optimum_there_is_no_line_for_it():
    panels = drawn(limit_figure([lagrangian(1)], "run", None))
    assert len(panels["return of training episodes"].lines) == 1


def test_the_trust_region_gets_its_cases_and_steps():
    panels = drawn(limit_figure([steps(1), steps(2)], "run", None))
    assert len(panels) == 6
    cases = panels["cases of the trust region (share of updates)"]
    tops = [area.get_paths()[0].vertices[:, 1].max() for area in cases.collections]
    assert tops == [0.25, 0.75, 1.0, 1.0]
    fraction = panels["step taken, as share of the full one"]
    assert [list(line(fraction, agent).get_ydata()) for agent in ("left", "right")] == [[1, 1], [0.64, 0.64]]
    assert line(panels["candidates tried by the line search"], "right").get_ydata()[0] == 3


def test_every_agent_has_its_own_limit_in_its_own_colour():
    costs = drawn(limit_figure([steps(1), steps(2)], "run", None))["cost of training episodes"]
    dashed = {
        to_hex(one.get_color()): one.get_ydata()[0] for one in costs.lines if one.get_linestyle() == "--"
    }
    assert dashed == {COLOURS[0].lower(): 4.0, COLOURS[1].lower(): 9.0}
    np.testing.assert_array_equal(line(costs, "left").get_xydata(), [[20, 5]])


def test_a_limit_of_several_agents_is_named_after_all_of_them():
    def with_third(updates):
        told = steps(updates)
        return told | {name.replace("/left", "/third"): one for name, one in told.items() if "/left" in name}

    costs = drawn(limit_figure([with_third(1), with_third(2)], "run", None))["cost of training episodes"]
    labels = {one.get_label(): one.get_ydata()[-1] for one in costs.lines}
    assert labels == {
        "left, third (equal)": 5.0,
        "right": 7.0,
        "limit of left, third": 4.0,
        "limit of right": 9.0,
    }


def test_no_line_hides_another():
    # b and d are equal, unknown points included; a runs along c in one segment, and only crosses b.
    a, b, c = ([0.0, 1.0, 1.0, 5.0], [np.nan, 2.0, 1.0, 7.0], [3.0, 1.0, 1.0, 4.0])
    lines = agent_lines(["a", "b", "c", "d"], [np.array(one) for one in (a, b, c, b)], 1.5)
    assert [(one.label, one.places) for one in lines] == [("a", (0,)), ("b, d (equal)", (1, 3)), ("c", (2,))]
    assert [one.colour for one in lines] == [COLOURS[0], COLOURS[1], COLOURS[2]]
    assert [one.width for one in lines] == [3.0, 1.5, 1.5]


def test_lines_of_one_point_hide_one_another_where_it_is_the_same():
    lines = agent_lines(["a", "b"], [np.array([[1.0, 2.0]]), np.array([[1.0, 3.0]])], 1.0)
    assert [one.width for one in lines] == [1.0, 1.0]


def test_more_agents_than_can_be_told_apart_are_grey_lines_under_one_name():
    lines = agent_lines([str(place) for place in range(7)], [np.zeros(3)] * 7, 1.0)
    assert {one.colour for one in lines} == {GREY}
    assert [one.label for one in lines] == ["single agents", *[None] * 6]


@pytest.mark.parametrize("rows", [[], [row(1, {"episode_return": 1.0, "episode_cost": 2.0})]])
def test_a_run_without_a_limit_has_no_such_figure(tmp_path, rows):
    write_limit_figure(tmp_path / "limits.png", rows, "run", None)
    assert not (tmp_path / "limits.png").exists()


def test_the_figure_is_written(tmp_path):
    write_limit_figure(tmp_path / "limits.png", [steps(1), steps(2)], "run", None)
    assert imageio.imread(tmp_path / "limits.png").std() > 0
