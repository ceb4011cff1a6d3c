"""Owns the canvas that pictures are drawn on, and the picture of what both JAX and torch simulate.

Everything is drawn at four times the size and reduced at the end, which smooths the edges. Widths and heights
are multiples of 16, which video encoders want.
"""

import math

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

Picture = npt.NDArray[np.uint8]
Colour = tuple[int, int, int]
Point = tuple[float, float]

SMOOTHING = 4
PAPER: Colour = (250, 249, 246)
INK: Colour = (38, 43, 51)
FAINT: Colour = (214, 211, 203)
ROD: Colour = (201, 87, 60)
CART: Colour = (52, 92, 140)
POSITIVE: Colour = (46, 134, 93)
NEGATIVE: Colour = (122, 79, 160)


def draw_pendulum(angle: float, torque: float, max_torque: float) -> Picture:
    """Draw a rod at an angle, and its torque as an arc with an arrow and as a bar.

    Args:
        angle: rad, 0 upright, positive counter-clockwise, as Gymnasium draws it.
        torque: N m, positive counter-clockwise.
        max_torque: N m, > 0, the torque that fills the bar.

    Returns:
        uint8 `[304, 304, 3]`.
    """
    canvas = Canvas(304, 304)
    pivot, reach = (152.0, 144.0), 104.0
    canvas.ring(pivot, reach + 8, 1.5, FAINT)
    canvas.line((152, 32), (152, 42), 2, FAINT)
    tip = (pivot[0] - reach * math.sin(angle), pivot[1] - reach * math.cos(angle))
    canvas.line(pivot, tip, 20, ROD)
    canvas.disc(pivot, 5, INK)
    fraction = max(-1.0, min(1.0, torque / max_torque))
    colour = POSITIVE if fraction > 0 else NEGATIVE
    if abs(fraction) > 0.02:
        canvas.turning_arrow(pivot, 30, 150 * fraction, colour)
    canvas.bar((152, 284), 110, 7, fraction, colour)
    return canvas.picture()


class Canvas:
    """A picture in pixels of its final size; the origin is at the top left."""

    def __init__(self, width: int, height: int) -> None:
        self._size = (width, height)
        self._image = Image.new("RGB", (width * SMOOTHING, height * SMOOTHING), PAPER)
        self._draw = ImageDraw.Draw(self._image)

    def line(self, start: Point, end: Point, width: float, colour: Colour) -> None:
        """A straight line with round ends."""
        self._draw.line([_scaled(start), _scaled(end)], fill=colour, width=round(width * SMOOTHING))
        self.disc(start, width / 2, colour)
        self.disc(end, width / 2, colour)

    def disc(self, centre: Point, radius: float, colour: Colour) -> None:
        """A filled circle."""
        self._draw.ellipse(_frame(centre, radius), fill=colour)

    def ring(self, centre: Point, radius: float, width: float, colour: Colour) -> None:
        """A circle."""
        self._draw.ellipse(_frame(centre, radius), outline=colour, width=round(width * SMOOTHING))

    def box(self, upper_left: Point, lower_right: Point, radius: float, colour: Colour) -> None:
        """A filled box with round corners."""
        corners = [_scaled(upper_left), _scaled(lower_right)]
        self._draw.rounded_rectangle(corners, radius=radius * SMOOTHING, fill=colour)

    def turning_arrow(self, centre: Point, radius: float, degrees: float, colour: Colour) -> None:
        """An arc from the top, counter-clockwise for positive degrees, with a head at its end."""
        # Pillow counts degrees clockwise from three o'clock.
        first, last = sorted((-90.0, -90.0 - degrees))
        self._draw.arc(_frame(centre, radius), first, last, fill=colour, width=round(4 * SMOOTHING))
        turn = math.radians(-90.0 - degrees)
        ahead = turn - math.copysign(0.38, degrees)
        corners = [
            _on_circle(centre, radius - 8, turn),
            _on_circle(centre, radius + 8, turn),
            _on_circle(centre, radius, ahead),
        ]
        self._draw.polygon([_scaled(corner) for corner in corners], fill=colour)

    def bar(self, middle: Point, half_width: float, height: float, fraction: float, colour: Colour) -> None:
        """A bar from its middle, to the left for positive fractions, which turn counter-clockwise."""
        x, y = middle
        self.box((x - half_width, y - height / 2), (x + half_width, y + height / 2), height / 2, FAINT)
        left, right = sorted((x, x - half_width * fraction))
        if right - left > 1:
            self.box((left, y - height / 2), (right, y + height / 2), height / 2, colour)
        self.line((x, y - height), (x, y + height), 1.5, INK)

    def picture(self) -> Picture:
        """Return uint8 `[H, W, 3]`."""
        return np.asarray(self._image.resize(self._size, Image.Resampling.LANCZOS))


def _scaled(point: Point) -> Point:
    return point[0] * SMOOTHING, point[1] * SMOOTHING


def _frame(centre: Point, radius: float) -> list[Point]:
    return [
        _scaled((centre[0] - radius, centre[1] - radius)),
        _scaled((centre[0] + radius, centre[1] + radius)),
    ]


def _on_circle(centre: Point, radius: float, angle: float) -> Point:
    return centre[0] + radius * math.cos(angle), centre[1] + radius * math.sin(angle)
