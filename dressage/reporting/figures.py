"""Owns the look that all figures of a run share."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dressage.reporting.metric_rows import Row

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Told apart with any colour vision.

Reference:
    Okabe, Ito: "Color Universal Design", 2008; without yellow, which is too pale on white.
"""
LINE_STYLES = ("-", "--", "-.", ":")
INK = "#22303c"
GREY = "#9aa5ad"
MOST_NAMED = 6
"""Agents that each get a colour and a name; more are drawn alike."""

GRID = "#e3e8ec"


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure, so many inches wide and high."""
    # Figures are made without pyplot: it keeps every figure alive and looks for a display.
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def dress(axes: Axes) -> None:
    """Give axes their grid and colours."""
    axes.grid(visible=True, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#b6c0c8")
    axes.tick_params(colors=INK)
    axes.xaxis.label.set_color(INK)
    axes.yaxis.label.set_color(INK)


def agents_with(rows: Sequence[Row], name: str) -> list[str]:
    """Return the agents that a metric is known for, in the order of the rows."""
    if not rows:
        return []
    return [key.removeprefix(f"{name}/") for key in rows[-1] if key.startswith(f"{name}/")]


@dataclass(frozen=True)
class AgentLine:
    """A line of a figure: one agent's, or that of several agents whose numbers are all the same.

    Attributes:
        places: Which agents, by their places.
        label: What the legend says; None for nothing.
        colour: That of the first agent.
        width: In points; greater where later lines run over this one, which stays visible on both sides.
    """

    places: tuple[int, ...]
    label: str | None
    colour: str
    width: float


def agent_lines(
    agents: Sequence[str], curves: Sequence[np.ndarray], width: float, colours: Sequence[str] = COLOURS
) -> list[AgentLine]:
    """Lay out a line for each agent so that none hides another.

    Agents with equal curves get one line, which names all of them. Of two lines that run together for a
    while the first is wider. More than `MOST_NAMED` agents are drawn alike, in grey.

    Args:
        agents: All agents.
        curves: The points of each, `[P, ...]`; NaN where there is none.
        width: Of a line that no other one runs over, in points.
        colours: One for each agent.
    """
    if len(agents) > MOST_NAMED:
        labels = ["single agents", *[None] * (len(agents) - 1)]
        return [AgentLine((place,), label, GREY, width) for place, label in enumerate(labels)]
    equal: list[list[int]] = []
    for place, curve in enumerate(curves):
        same = next((one for one in equal if np.array_equal(curves[one[0]], curve, equal_nan=True)), None)
        if same is None:
            equal.append([place])
        else:
            same.append(place)
    firsts = [curves[places[0]] for places in equal]
    return [
        AgentLine(
            tuple(places),
            ", ".join(agents[place] for place in places) + (" (equal)" if len(places) > 1 else ""),
            colours[places[0] % len(colours)],
            width * (1 + sum(_run_together(firsts[index], later) for later in firsts[index + 1 :])),
        )
        for index, places in enumerate(equal)
    ]


def _run_together(first: np.ndarray, second: np.ndarray) -> bool:
    """Whether two curves share a part: two points in a row, or their only one."""
    shared = (first == second).reshape(len(first), -1).all(axis=1)
    return bool(shared.all() if len(shared) < 2 else (shared[1:] & shared[:-1]).any())


def mean_of_known(values: np.ndarray) -> float:
    """Average what is no NaN; NaN where nothing is left."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else math.nan


def short_count(value: float, _position: int) -> str:
    """Format a tick: 250000 as `250 k`."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g} {suffix}"
    return f"{value:g}"
