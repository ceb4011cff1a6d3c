"""Owns the look that all figures of a run share."""

import math
from collections.abc import Sequence

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
