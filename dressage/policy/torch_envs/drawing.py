"""Pictures of the torch tasks, drawn on the host from one copy's state."""

import math

import numpy as np
import numpy.typing as npt

from dressage import pictures
from dressage.pictures import CART, FAINT, INK, PAPER, POSITIVE, ROD, Canvas, Picture
from dressage.policy.torch_envs import hopper, pendulum


def draw_pendulum(state: npt.NDArray[np.floating]) -> Picture:
    """Draw the rod at its angle and the torque.

    Args:
        state: `[3]`, as `pendulum.Pendulum` describes it.

    Returns:
        uint8 `[304, 304, 3]`.
    """
    return pictures.draw_pendulum(float(state[0]), float(state[2]), pendulum.MAX_TORQUE)


def draw_hopper(state: npt.NDArray[np.floating]) -> Picture:
    """Draw body, leg and ground from the side, following the body, and its speed beside the commanded one.

    Args:
        state: `[11]`, as `hopper.Hopper` describes it.

    Returns:
        uint8 `[240, 400, 3]`.
    """
    canvas = Canvas(400, 240)
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
    canvas.disc(foot, 7, POSITIVE if stands else INK)
    pitch = float(state[hopper.PITCH])
    along = (34.0 * math.cos(pitch), -34.0 * math.sin(pitch))
    canvas.line((hip[0] - along[0], hip[1] - along[1]), (hip[0] + along[0], hip[1] + along[1]), 26, CART)
    canvas.disc((hip[0] + along[0], hip[1] + along[1]), 5, PAPER)
    canvas.line((20, 16), (20 + 80 * float(state[hopper.COMMAND]), 16), 6, FAINT)
    canvas.line((20, 26), (20 + 80 * float(state[hopper.SPEED]), 26), 6, POSITIVE)
    return canvas.picture()
