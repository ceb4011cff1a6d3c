"""Owns the figures: learning curves with their spread, and the training diagnostics."""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter

from dressage.reporting.figures import (
    COLOURS,
    GREY,
    INK,
    LINE_STYLES,
    MOST_NAMED,
    agent_lines,
    agents_with,
    dress,
    mean_of_known,
    new_figure,
    short_count,
)
from dressage.reporting.metric_rows import Row, episode_returns, of_kind, seed_values
from dressage.reporting.seed_statistics import summarize_returns

DIAGNOSTICS = (
    ("train/episode_return", "return of training episodes"),
    ("train/episode_length", "length of training episodes (steps)"),
    ("train/entropy", "entropy of the policy (nats)"),
    ("train/approx_kl", "KL divergence of an update (nats)"),
    ("train/clip_fraction", "clipped share of samples"),
    ("train/explained_variance", "explained variance of returns"),
    ("train/value_loss", "value loss"),
    ("train/gradient_norm", "gradient norm before clipping"),
    ("train/learning_rate", "learning rate"),
)
"""Metrics worth a small plot each, with what their axis says."""


LOGARITHMIC = frozenset({"train/value_loss"})
"""Diagnostics that start orders of magnitude above where they end."""


@dataclass(frozen=True)
class Curve:
    """A learning curve.

    Attributes:
        label: What the legend says.
        steps: Environment steps of one seed, `[P]`.
        centre: Estimate of the return at each point, `[P]`.
        low: Lower edge of the band, `[P]`; NaN where there is none.
        high: Upper edge of the band, `[P]`.
        meaning: What line and band are.
    """

    label: str
    steps: np.ndarray  # [P]
    centre: np.ndarray  # [P]
    low: np.ndarray  # [P]
    high: np.ndarray  # [P]
    meaning: str


def learning_curve(label: str, rows: Sequence[Row]) -> Curve:
    """Make the curve of a run from its metric rows.

    One seed: mean over the evaluation episodes and plus or minus one standard deviation of them. Several
    seeds: interquartile mean over the seeds and its 95 % bootstrap interval. A run without evaluations: the
    returns of its training episodes, averaged over the seeds, and their range.

    Args:
        label: What the legend says.
        rows: The rows of `metrics.jsonl`.
    """
    evaluations = of_kind(rows, "eval")
    if not evaluations:
        return _training_curve(label, of_kind(rows, "train"))
    summaries = [summarize_returns(episode_returns(row)) for row in evaluations]
    steps = np.array([row["steps"] for row in evaluations], dtype=np.float64)
    centre = np.array([summary.estimate for summary in summaries])
    if summaries[0].over_seeds:
        low = np.array([summary.low for summary in summaries])
        high = np.array([summary.high for summary in summaries])
        meaning = f"interquartile mean of {len(summaries[0].seed_means)} seeds, 95 % bootstrap interval"
        return Curve(label, steps, centre, low, high, meaning)
    spread = np.array([summary.deviation for summary in summaries])
    return Curve(label, steps, centre, centre - spread, centre + spread, "mean ± std of evaluation episodes")


def agent_curves(rows: Sequence[Row]) -> list[Curve]:
    """Make the curve of each of several agents: the mean of its evaluation episodes, over all seeds.

    Args:
        rows: The rows of `metrics.jsonl`.

    Returns:
        One curve an agent, without a band; none for a run of one agent.
    """
    evaluations = of_kind(rows, "eval")
    names = agents_with(evaluations, "eval/return_mean")
    steps = np.array([row["steps"] for row in evaluations], dtype=np.float64)
    curves = []
    for agent in names:
        values = [seed_values(row, f"eval/return_mean/{agent}") for row in evaluations]
        centre = np.array([mean_of_known(one) for one in values])
        none = np.full(len(steps), math.nan)
        curves.append(Curve(agent, steps, centre, none, none, agent))
    return curves


def write_learning_curves(
    path: Path, curves: Sequence[Curve], title: str, agents: Sequence[Curve] = ()
) -> None:
    """Draw one or several learning curves into one PNG file.

    Args:
        path: Where the picture goes.
        curves: At least one.
        title: The figure's title; empty for none.
        agents: Curves of the single agents, drawn thin.
    """
    figure = new_figure(7.2, 4.2)
    axes = figure.add_subplot()
    for index, curve in enumerate(curves):
        _draw_curve(axes, curve, index, alone=len(curves) == 1)
    lines = agent_lines([one.label for one in agents], [one.centre for one in agents], 1.0, COLOURS[1:])
    for line in lines:
        curve = agents[line.places[0]]
        axes.plot(curve.steps, curve.centre, color=line.colour, lw=line.width, ls="--", label=line.label)
    dress(axes)
    axes.set_xlabel("environment steps")
    axes.set_ylabel("return per episode")
    axes.xaxis.set_major_formatter(FuncFormatter(short_count))
    if title:
        axes.set_title(title, loc="left", fontsize=12, fontweight="bold", color=INK)
    # Curves of returns rise from left to right in the usual case, so the lower right corner is free.
    axes.legend(frameon=False, loc="best", fontsize=9, labelcolor=INK)
    figure.savefig(path, dpi=160, metadata={"Software": None})


def diagnostics_svg(rows: Sequence[Row]) -> str:
    """Draw the training diagnostics as small plots and return the SVG text; empty where there are none.

    Args:
        rows: The rows of `metrics.jsonl`.
    """
    training = of_kind(rows, "train")
    shown = [(name, text) for name, text in DIAGNOSTICS if _has_numbers(training, name)]
    if not shown:
        return ""
    columns = 3
    lines = -(-len(shown) // columns)
    figure = new_figure(9.6, 2.15 * lines)
    engine = figure.get_layout_engine()
    assert isinstance(engine, ConstrainedLayoutEngine), "every figure of ours has it"
    engine.set(h_pad=0.1, w_pad=0.06)  # Titles keep off the figures of the row above.
    for index, (name, text) in enumerate(shown):
        axes = figure.add_subplot(lines, columns, index + 1)
        _draw_diagnostic(axes, training, name)
        axes.set_title(text, loc="left", fontsize=8.5, color=INK)
    target = io.StringIO()
    figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    text = target.getvalue()
    return text[text.index("<svg") :]


def _training_curve(label: str, training: Sequence[Row]) -> Curve:
    values = [(row["steps"], seed_values(row, "train/episode_return")) for row in training]
    kept = [(steps, v[~np.isnan(v)]) for steps, v in values if not np.isnan(v).all()]
    return Curve(
        label,
        np.array([steps for steps, _ in kept], dtype=np.float64),
        np.array([v.mean() for _, v in kept]),
        np.array([v.min() for _, v in kept]),
        np.array([v.max() for _, v in kept]),
        "training episodes, mean and range over the seeds",
    )


def _draw_curve(axes: Axes, curve: Curve, index: int, *, alone: bool) -> None:
    colour = COLOURS[index % len(COLOURS)]
    label = curve.meaning if alone else f"{curve.label} ({curve.meaning})"
    axes.fill_between(curve.steps, curve.low, curve.high, color=colour, alpha=0.18, linewidth=0)
    axes.plot(
        curve.steps,
        curve.centre,
        color=colour,
        linestyle=LINE_STYLES[index // len(COLOURS) % len(LINE_STYLES)],
        linewidth=2.0,
        marker="o",
        markersize=4.0 if len(curve.steps) <= 40 else 0.0,
        label=label,
    )


def _draw_diagnostic(axes: Axes, training: Sequence[Row], name: str) -> None:
    steps = np.array([row["steps"] for row in training], dtype=np.float64)
    agents = agents_with(training, name)
    for index, agent in enumerate(agents):
        own = [seed_values(row, f"{name}/{agent}") for row in training]
        means = [mean_of_known(one) for one in own]
        colour = COLOURS[(1 + index) % len(COLOURS)] if len(agents) <= MOST_NAMED else GREY
        axes.plot(steps, means, color=colour, linewidth=0.8, alpha=0.7)
    seeds = max(len(seed_values(row, name)) for row in training)
    values = np.stack([_padded(seed_values(row, name), seeds) for row in training])  # [P, K]
    faint = 1.0 if seeds == 1 else 0.35
    for column in values.T:
        drawn = ~np.isnan(column)
        axes.plot(steps[drawn], column[drawn], color=COLOURS[0], linewidth=1.2, alpha=faint)
    dress(axes)
    axes.tick_params(which="both", labelsize=7)
    axes.xaxis.set_major_formatter(FuncFormatter(short_count))
    axes.locator_params(axis="x", nbins=4)
    known = values[~np.isnan(values)]
    if name in LOGARITHMIC and (known > 0.0).all():
        axes.set_yscale("log")
        return
    axes.locator_params(axis="y", nbins=4)
    axes.ticklabel_format(axis="y", useOffset=False)
    size = float(np.abs(known).max())
    if known.max() - known.min() < 1e-4 * size:
        # A constant is drawn as one: magnified, its rounding errors would look like an event.
        axes.set_ylim(known.mean() - 0.5 * size, known.mean() + 0.5 * size)


def _has_numbers(training: Sequence[Row], name: str) -> bool:
    return any(not np.isnan(seed_values(row, name)).all() for row in training)


def _padded(values: np.ndarray, length: int) -> np.ndarray:
    return np.pad(values, (0, length - len(values)), constant_values=math.nan)
