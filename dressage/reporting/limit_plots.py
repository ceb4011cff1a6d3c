"""Owns the figure of a run under a cost limit: return, cost, multipliers, trust-region steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from dressage.equations.trust_region import StepCase
from dressage.reporting.figures import (
    COLOURS,
    GREY,
    INK,
    MOST_NAMED,
    AgentLine,
    agent_lines,
    agents_with,
    dress,
    mean_of_known,
    new_figure,
    short_count,
)
from dressage.reporting.metric_rows import Row, of_kind, seed_values

LIMIT = "train/cost_limit"
COST = "train/episode_cost"
COLUMNS = 3
LINE_WIDTH = 1.4
CASE_COLOURS = {
    StepCase.UNCONSTRAINED: "#009E73",
    StepCase.ACTIVE: "#56B4E9",
    StepCase.RECOVERY: "#D55E00",
    StepCase.STATIONARY: GREY,
}


@dataclass(frozen=True)
class Optimum:
    """What the best policy under the limit reaches, in a task that can be solved exactly.

    Attributes:
        returns: Expected return of an episode.
        multiplier: The dual variable of the limit, return a unit of cost.
    """

    returns: float
    multiplier: float


@dataclass(frozen=True)
class Panel:
    """One metric over the steps.

    Attributes:
        name: The metric.
        title: What it is, with its unit.
    """

    name: str
    title: str


RETURN_PANEL = Panel("train/episode_return", "return of training episodes")
COST_PANEL = Panel(COST, "cost of training episodes")
STEP_PANELS = (
    Panel("train/step_fraction", "step taken, as share of the full one"),
    Panel("train/attempts", "candidates tried by the line search"),
)


def write_limit_figure(path: Path, rows: Sequence[Row], title: str, optimum: Optimum | None) -> None:
    """Draw the figure of a run under a limit as PNG; nothing for a run without one.

    Args:
        path: Where the picture goes.
        rows: The rows of `metrics.jsonl`.
        title: The figure's title.
        optimum: What is best under the limit, where that is known.
    """
    figure = limit_figure(rows, title, optimum)
    if figure is not None:
        figure.savefig(path, dpi=150, metadata={"Software": None})


def limit_figure(rows: Sequence[Row], title: str, optimum: Optimum | None) -> Figure | None:
    """Draw return, cost and price, and the trust region's steps where there are any; None without a limit.

    Several agents get a line each, equal ones one together; several seeds their mean and their range.
    """
    training = [row for row in of_kind(rows, "train") if COST in row and LIMIT in row]
    if not training:
        return None
    by_steps = f"train/case_{StepCase.RECOVERY.name.lower()}" in training[-1]
    price = Panel(
        "train/cost_multiplier" if by_steps else "train/multiplier", "price of cost (return a unit)"
    )
    panels = (RETURN_PANEL, COST_PANEL, price, *(STEP_PANELS if by_steps else ()))
    count = len(panels) + by_steps
    lines = -(-count // COLUMNS)
    figure = new_figure(11.0, 0.5 + 2.9 * lines)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK)
    drawn = [figure.add_subplot(lines, COLUMNS, place + 1) for place in range(count)]
    for axes, panel in zip(drawn, panels, strict=False):
        _draw_panel(axes, training, panel)
    _mark_optimum(drawn[0], drawn[2], optimum)
    _mark_limits(drawn[1], training)
    if by_steps:
        _draw_cases(drawn[-1], training)
    for axes in drawn:
        _finish(axes, framed=by_steps and axes is drawn[-1])
    return figure


def _draw_panel(axes: Axes, training: Sequence[Row], panel: Panel) -> None:
    axes.set_title(panel.title, loc="left", fontsize=9.5, color=INK)
    agents = agents_with(training, panel.name)
    if not agents:
        _draw_line(axes, training, panel.name, AgentLine((0,), None, COLOURS[0], LINE_WIDTH))
    means = [_means(training, f"{panel.name}/{agent}") for agent in agents]
    for line in agent_lines(agents, means, LINE_WIDTH):
        _draw_line(axes, training, f"{panel.name}/{agents[line.places[0]]}", line)
    axes.margins(y=0.12)


def _means(training: Sequence[Row], name: str) -> np.ndarray:
    return np.array([mean_of_known(seed_values(row, name)) for row in training])


def _draw_line(axes: Axes, training: Sequence[Row], name: str, line: AgentLine) -> None:
    """Draw the mean over the seeds and their range."""
    values = [(row["steps"], seed_values(row, name)) for row in training]
    known = [(steps, one[~np.isnan(one)]) for steps, one in values if not np.isnan(one).all()]
    steps = [steps for steps, _ in known]
    if len(values[-1][1]) > 1:
        low, high = ([end(one) for _, one in known] for end in (np.min, np.max))
        axes.fill_between(steps, low, high, color=line.colour, alpha=0.15, linewidth=0)
    means = [one.mean() for _, one in known]
    axes.plot(steps, means, color=line.colour, linewidth=line.width, label=line.label)


def _mark_limits(axes: Axes, training: Sequence[Row]) -> None:
    """Draw one line where all limits are the same, else one for each, in the colour of its first agent."""
    agents = agents_with(training, LIMIT)
    limits = [_means(training[-1:], f"{LIMIT}/{agent}") for agent in agents]
    if len(np.unique(limits)) <= 1:
        _line(axes, mean_of_known(seed_values(training[-1], LIMIT)), "limit")
        return
    for line in agent_lines(agents, limits, LINE_WIDTH):
        named = f"limit of {', '.join(agents[place] for place in line.places)}"
        label = named if len(agents) <= MOST_NAMED else line.label and "limits"
        _line(axes, float(limits[line.places[0]][0]), label, line.colour)


def _mark_optimum(returns: Axes, price: Axes, optimum: Optimum | None) -> None:
    if optimum is None:
        return
    _line(returns, optimum.returns, "optimum under the limit")
    _line(price, optimum.multiplier, "dual of the limit")


def _draw_cases(axes: Axes, training: Sequence[Row]) -> None:
    """Stack the shares of updates that each case of the trust region had, over all agents and seeds."""
    steps = [row["steps"] for row in training]
    names = {case: f"train/case_{case.name.lower()}" for case in StepCase}
    shares = [[mean_of_known(seed_values(row, name)) for row in training] for name in names.values()]
    colours = [CASE_COLOURS[case] for case in names]
    axes.stackplot(steps, shares, labels=[case.name.lower() for case in names], colors=colours, linewidth=0)
    axes.set_title("cases of the trust region (share of updates)", loc="left", fontsize=9.5, color=INK)
    axes.set_ylim(0.0, 1.0)
    axes.margins(x=0.0)


def _finish(axes: Axes, *, framed: bool) -> None:
    dress(axes)
    axes.tick_params(labelsize=8)
    axes.xaxis.set_major_formatter(FuncFormatter(short_count))
    axes.locator_params(axis="x", nbins=5)
    axes.set_xlabel("environment steps", fontsize=8.5)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=framed, framealpha=0.9, loc="best", fontsize=8, labelcolor=INK)


def _line(axes: Axes, height: float, label: str | None, colour: str = INK) -> None:
    axes.axhline(height, label=label, color=colour, linewidth=1.1, linestyle="--")
