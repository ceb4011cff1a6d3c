"""Pictures of the torch tasks, drawn on the host from one copy's state.

Everything is drawn at four times the size and reduced at the end, which smooths the edges.
"""

import math

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from dressage.policy.torch_envs import hopper, pendulum

Picture = npt.NDArray[np.uint8]
Colour = tuple[int, int, int]
Point = tuple[float, float]

SMOOTHING = 4
PAPER: Colour = (250, 249, 246)
INK: Colour = (38, 43, 51)
FAINT: Colour = (214, 211, 203)
ROD: Colour = (201, 87, 60)
BODY: Colour = (52, 92, 140)
AHEAD: Colour = (46, 134, 93)


def draw_pendulum(state: npt.NDArray[np.floating]) -> Picture:
    """Draw the rod at its angle and the torque as a bar.

    Args:
        state: `[3]`, as `pendulum.Pendulum` describes it.

    Returns:
        uint8 `[304, 304, 3]`.
    """
    canvas = _Canvas(304, 304)
    angle, torque = float(state[0]), float(state[2])
    pivot, reach = (152.0, 144.0), 104.0
    canvas.ring(pivot, reach + 8)
    canvas.line(pivot, (pivot[0] - reach * math.sin(angle), pivot[1] - reach * math.cos(angle)), 20, ROD)
    canvas.disc(pivot, 5, INK)
    length = 110.0 * torque / pendulum.MAX_TORQUE
    canvas.line((42, 284), (262, 284), 3, FAINT)
    canvas.line((152, 284), (152 - length, 284), 7, AHEAD)
    return canvas.picture()


def draw_hopper(state: npt.NDArray[np.floating]) -> Picture:
    """Draw body, leg and ground from the side, following the body, and its speed beside the commanded one.

    Args:
        state: `[11]`, as `hopper.Hopper` describes it.

    Returns:
        uint8 `[240, 400, 3]`.
    """
    canvas = _Canvas(400, 240)
    scale, ground, middle = 130.0, 200.0, 200.0
    canvas.line((0, ground), (400, ground), 3, INK)
    place = float(state[hopper.X])
    for mark in range(math.floor(place) - 2, math.floor(place) + 4):
        across = middle + scale * (mark - place)
        canvas.line((across, ground), (across - 8, ground + 12), 2, FAINT)
    hip = (middle, ground - scale * float(state[hopper.HEIGHT]))
    leg, length = float(state[hopper.LEG]), float(state[hopper.LENGTH])
    foot = (hip[0] + scale * length * math.sin(leg), hip[1] + scale * length * math.cos(leg))
    stands = bool(state[hopper.STANDS] > 0.5)
    canvas.line(hip, foot, 8, ROD)
    canvas.disc(foot, 7, AHEAD if stands else INK)
    pitch = float(state[hopper.PITCH])
    along = (34.0 * math.cos(pitch), -34.0 * math.sin(pitch))
    canvas.line((hip[0] - along[0], hip[1] - along[1]), (hip[0] + along[0], hip[1] + along[1]), 26, BODY)
    canvas.disc((hip[0] + along[0], hip[1] + along[1]), 5, PAPER)
    canvas.line((20, 16), (20 + 80 * float(state[hopper.COMMAND]), 16), 6, FAINT)
    canvas.line((20, 26), (20 + 80 * float(state[hopper.SPEED]), 26), 6, AHEAD)
    return canvas.picture()


class _Canvas:
    """Draws shapes with round ends in pixels of the finished picture."""

    def __init__(self, width: int, height: int) -> None:
        self._size = (width, height)
        self._image = Image.new("RGB", (width * SMOOTHING, height * SMOOTHING), PAPER)
        self._draw = ImageDraw.Draw(self._image)

    def line(self, start: Point, end: Point, width: float, colour: Colour) -> None:
        """Draw a line with round ends."""
        self._draw.line([*_larger(start), *_larger(end)], fill=colour, width=round(width * SMOOTHING))
        self.disc(start, width / 2, colour)
        self.disc(end, width / 2, colour)

    def disc(self, centre: Point, radius: float, colour: Colour) -> None:
        """Draw a filled circle."""
        self._draw.ellipse(_box(centre, radius), fill=colour)

    def ring(self, centre: Point, radius: float) -> None:
        """Draw a faint circle."""
        self._draw.ellipse(_box(centre, radius), outline=FAINT, width=2 * SMOOTHING)

    def picture(self) -> Picture:
        """Return the picture at its own size."""
        return np.asarray(self._image.resize(self._size, Image.Resampling.LANCZOS), dtype=np.uint8)


def _larger(point: Point) -> Point:
    return point[0] * SMOOTHING, point[1] * SMOOTHING


def _box(centre: Point, radius: float) -> tuple[float, float, float, float]:
    (across, down), half = _larger(centre), radius * SMOOTHING
    return across - half, down - half, across + half, down + half
