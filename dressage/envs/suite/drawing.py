"""Pictures of the suite's environments, drawn on the host."""

import math

from dressage.pictures import CART, FAINT, INK, NEGATIVE, PAPER, ROD, Canvas, Picture


def draw_cartpole(position: float, angle: float, pole_length: float) -> Picture:
    """Draw a cart on its track with the bounds that end an episode, and the pole on it.

    Args:
        position: m from the middle of the track, which ends at ±2.4 m.
        angle: rad from upright, positive to the right.
        pole_length: m.

    Returns:
        uint8 `[224, 480, 3]`.
    """
    canvas = Canvas(480, 224)
    metre, track = 82.0, 176.0
    middle = 240.0
    for end in (-2.4, 2.4):
        canvas.line((middle + end * metre, track - 16), (middle + end * metre, track + 16), 2, NEGATIVE)
    canvas.line((middle - 2.4 * metre, track), (middle + 2.4 * metre, track), 2, INK)
    for mark in range(-2, 3):
        canvas.line((middle + mark * metre, track + 4), (middle + mark * metre, track + 9), 1.5, FAINT)
    x = middle + position * metre
    joint = (x, track - 30)
    for wheel in (-16, 16):
        canvas.disc((x + wheel, track - 5), 5, INK)
    canvas.box((x - 30, track - 34), (x + 30, track - 8), 5, CART)
    tip = (x + pole_length * metre * math.sin(angle), joint[1] - pole_length * metre * math.cos(angle))
    canvas.line(joint, tip, 9, ROD)
    canvas.disc(joint, 3.5, PAPER)
    return canvas.picture()
