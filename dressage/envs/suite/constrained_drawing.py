"""Pictures of the suite's environments with costs, drawn on the host."""

from typing import Any

import numpy as np
import numpy.typing as npt

from dressage.envs.suite.multi_agent_drawing import agent_colour
from dressage.pictures import (
    CART,
    FAINT,
    INK,
    NEGATIVE,
    PAPER,
    POSITIVE,
    ROD,
    Canvas,
    Colour,
    Picture,
)

Points = npt.NDArray[Any]
Place = tuple[int, int]

HAZARD: Colour = (235, 203, 190)
GRASS: Colour = (206, 226, 208)


def draw_grid(agent: Place, size: Place, goal: Place, hazards: tuple[Place, ...]) -> Picture:
    """Draw a grid with its goal, its hazards and the agent.

    Args:
        agent: Row and column.
        size: Rows and columns.
        goal: Row and column.
        hazards: Rows and columns.

    Returns:
        uint8 `[H, W, 3]`.
    """
    rows, columns = size
    side, margin = 96.0, 16.0
    canvas = Canvas(round(columns * side + 2 * margin), round(rows * side + 2 * margin))
    for place in np.ndindex(rows, columns):
        x, y = margin + place[1] * side, margin + place[0] * side
        colour = HAZARD if place in hazards else GRASS if place == goal else FAINT
        canvas.box((x + 2, y + 2), (x + side - 2, y + side - 2), 8, colour)
        if colour == FAINT:
            canvas.box((x + 3.5, y + 3.5), (x + side - 3.5, y + side - 3.5), 7, PAPER)
        x, y = x + side / 2, y + side / 2
        if place in hazards:
            canvas.line((x - 14, y - 14), (x + 14, y + 14), 4, ROD)
            canvas.line((x - 14, y + 14), (x + 14, y - 14), 4, ROD)
        if place == goal:
            canvas.ring((x, y), 26, 4, POSITIVE)
        if place == agent:
            canvas.disc((x, y), 18, CART)
    return canvas.picture()


def draw_ladder(rung: int, falls: Points) -> Picture:
    """Draw a ladder, beside each rung a bar of its probability of a fall at each pace, and the climber.

    Args:
        rung: The climber's, from 0.
        falls: `[rungs, paces]` probabilities of a fall.

    Returns:
        uint8 `[H, 288, 3]`.
    """
    rungs = len(falls)
    height = 16 * round((rungs * 30 + 48) / 16)
    canvas, bottom, left, right = Canvas(288, height), height - 34.0, 40.0, 112.0
    for x in (left, right):
        canvas.line((x, 16), (x, height - 16.0), 5, INK)
    for number in range(rungs):
        y = bottom - 30 * number
        canvas.line((left, y), (right, y), 4, POSITIVE if number == rungs - 1 else FAINT)
    for number, pace in np.argwhere(falls > 0):
        top, length = bottom - 30 * number - 9 + 7 * pace, 120 * float(falls[number, pace]) / falls.max()
        canvas.box((140, top), (142 + length, top + 5), 1, (POSITIVE, CART, ROD)[min(pace, 2)])
    canvas.disc(((left + right) / 2, bottom - 30 * rung - 13), 11, CART)
    return canvas.picture()


def draw_crossing(positions: Points, velocities: Points, goals: Points, radius: float) -> Picture:
    """Draw robots as discs with their velocities, ringed where they collide, and their goals as rings.

    Args:
        positions: `[N, 2]` metres.
        velocities: `[N, 2]` metres per second.
        goals: `[N, 2]` metres.
        radius: Of a robot, metres.

    Returns:
        uint8 `[352, 352, 3]`, as much of the plane as is needed to see everyone.
    """
    canvas, middle = Canvas(352, 352), 176.0
    circle = float(np.linalg.norm(goals, axis=1).max())
    scale = middle / max(1.25 * circle, 1.1 * float(np.abs(positions).max()))
    canvas.ring((middle, middle), scale * circle, 1.5, FAINT)
    apart = _distances(positions)
    for index, (position, velocity, goal) in enumerate(zip(positions, velocities, goals, strict=True)):
        colour = agent_colour(index)
        place = _pixel(position, middle, scale)
        canvas.ring(_pixel(goal, middle, scale), scale * radius, 2.5, colour)
        if apart[index].min() < 2 * radius:
            canvas.disc(place, scale * radius + 5, INK)
            canvas.disc(place, scale * radius + 3, PAPER)
        canvas.line(place, _pixel(position + 0.5 * velocity, middle, scale), 3, colour)
        canvas.disc(place, scale * radius, colour)
    return canvas.picture()


def draw_platoon(positions: Points, accelerations: Points, least_gap: float) -> Picture:
    """Draw cars from the side, the leader rightmost, with what they do as arrows and gaps that are too small.

    Args:
        positions: `[N + 1]` metres along the road, the leader first.
        accelerations: `[N + 1]` m/s².
        least_gap: Gap below which a step costs, metres.

    Returns:
        uint8 `[144, 480, 3]`, the whole row.
    """
    canvas, road = Canvas(480, 144), 98.0
    scale = 400.0 / max(80.0, float(positions.max() - positions.min()) + 10)
    fronts = 440 - scale * (positions.max() - positions)
    canvas.line((8, road), (472, road), 3, INK)
    for number, (front, acceleration) in enumerate(zip(fronts, accelerations, strict=True)):
        x, colour = float(front), INK if number == 0 else agent_colour(number - 1)
        canvas.box((x - 28, road - 19), (x, road - 6), 5, colour)
        canvas.box((x - 22, road - 29), (x - 7, road - 16), 5, colour)
        for wheel in (-21, -7):
            canvas.disc((x + wheel, road - 5), 4.5, INK)
        _arrow(canvas, (x - 14, road - 42), 5 * float(acceleration), POSITIVE if acceleration > 0 else ROD)
        if number and positions[number - 1] - positions[number] < least_gap:
            canvas.line((x - 20, road + 14), (x + 4, road + 14), 5, NEGATIVE)
    return canvas.picture()


def _arrow(canvas: Canvas, start: tuple[float, float], length: float, colour: Colour) -> None:
    """Draw a level arrow, to the right for positive lengths."""
    if abs(length) < 1:
        return
    tip = (start[0] + length, start[1])
    back = 5 if length > 0 else -5
    canvas.line(start, tip, 3, colour)
    for side in (-4, 4):
        canvas.line(tip, (tip[0] - back, tip[1] + side), 3, colour)


def _distances(positions: Points) -> Points:
    """`[N, N]` between all pairs; no robot is near itself."""
    way = positions[:, None] - positions[None]
    apart: Points = np.linalg.norm(way, axis=-1) + np.diag(np.full(len(positions), np.inf))
    return apart


def _pixel(place: Points, middle: float, scale: float) -> tuple[float, float]:
    return middle + scale * float(place[0]), middle - scale * float(place[1])
