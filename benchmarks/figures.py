"""The look of the benchmarks' pictures."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from dressage.reporting.figures import COLOURS, GRID, INK

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"


def axes(horizontal: str, vertical: str) -> tuple[Figure, Axes]:
    """Return an empty figure with one panel and labelled axes; large numbers are told in thousands."""
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    panel = figure.add_subplot()
    panel.set_prop_cycle(color=COLOURS)
    panel.set_xlabel(horizontal, color=INK)
    panel.set_ylabel(vertical, color=INK)
    panel.grid(color=GRID)
    panel.set_axisbelow(True)
    for edge in ("top", "right"):
        panel.spines[edge].set_visible(False)
    panel.yaxis.set_major_formatter(FuncFormatter(_thousands))
    return figure, panel


def save_figure(figure: Figure, path: Path) -> Path:
    """Write the figure as PNG and return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path


def _thousands(value: float, _: int) -> str:
    """Format a tick: 250000 as "250k", 1400 as "1,400"."""
    return f"{value / 1000:,g}k" if abs(value) >= 10_000 else f"{value:,g}"
