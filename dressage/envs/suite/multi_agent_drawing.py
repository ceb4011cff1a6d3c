"""Pictures of the suite's environments of many agents, drawn on the host."""

import colorsys
from typing import Any

import numpy as np
import numpy.typing as npt

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

FIRST_COLOURS: tuple[Colour, ...] = (CART, ROD, POSITIVE, NEGATIVE)
RUBBLE: Colour = (150, 141, 128)


def agent_colour(index: int) -> Colour:
    """Return the colour of an agent: four chosen ones first, then evenly turning hues."""
    if index < len(FIRST_COLOURS):
        return FIRST_COLOURS[index]
    # The golden ratio keeps neighbours apart whatever their number.
    red, green, blue = colorsys.hls_to_rgb(index * 0.618034 % 1, 0.45, 0.45)
    return round(255 * red), round(255 * green), round(255 * blue)


def draw_spread(positions: Points, landmarks: Points, radius: float) -> Picture:
    """Draw agents as discs, ringed where they collide, and landmarks as crosses, filled where covered.

    Args:
        positions: `[N, 2]` of the agents.
        landmarks: `[N, 2]`.
        radius: Of an agent; a landmark counts as covered by an agent whose disc lies over it.

    Returns:
        uint8 `[352, 352, 3]`; the picture shows ±1.35, or as much as is needed to see everyone.
    """
    canvas, middle = Canvas(352, 352), 176.0
    reach = max(1.35, 1.05 * float(np.abs(np.concatenate([positions, landmarks])).max()))
    scale = middle / reach
    places = [(middle + scale * float(x), middle - scale * float(y)) for x, y in positions]
    corner = scale  # the square in which episodes start
    for a, b in (((-1, -1), (1, -1)), ((1, -1), (1, 1)), ((1, 1), (-1, 1)), ((-1, 1), (-1, -1))):
        start = (middle + corner * a[0], middle + corner * a[1])
        canvas.line(start, (middle + corner * b[0], middle + corner * b[1]), 1.5, FAINT)
    apart = np.linalg.norm(positions[:, None] - positions[None], axis=-1) + 4 * radius * np.eye(
        len(positions)
    )
    for index, place in enumerate(places):
        if apart[index].min() < 2 * radius:
            canvas.disc(place, scale * radius + 4, INK)
            canvas.disc(place, scale * radius + 2, PAPER)
        canvas.disc(place, scale * radius, agent_colour(index))
    covered = np.linalg.norm(landmarks[:, None] - positions[None], axis=-1).min(axis=1) < radius
    for landmark, is_covered in zip(landmarks, covered, strict=True):
        x, y = middle + scale * float(landmark[0]), middle - scale * float(landmark[1])
        if is_covered:
            canvas.disc((x, y), 9, PAPER)
        canvas.line((x - 5, y - 5), (x + 5, y + 5), 3, INK)
        canvas.line((x - 5, y + 5), (x + 5, y - 5), 3, INK)
    return canvas.picture()


def draw_corridor(cells: Points, inside: Points, length: int, rubble: int) -> Picture:
    """Draw a row of cells with the exit at its right end, rubble from its left, and a lane for each agent.

    Args:
        cells: Integer `[N]`, each agent's cell, from 0.
        inside: Bool `[N]`, whether the agent is still in the corridor.
        length: Cells.
        rubble: Cells that have fallen in.

    Returns:
        uint8 `[H, 480, 3]`, with `H` as the agents need.
    """
    lane, width = 26.0, 432.0 / length
    height = 16 * round((48 + lane * len(cells)) / 16)
    canvas, left, top = Canvas(480, height), 24.0, 20.0
    bottom = height - 20.0
    for cell in range(length):
        x = left + cell * width
        colour = RUBBLE if cell < rubble else POSITIVE if cell == length - 1 else FAINT
        canvas.box((x + 1.5, top), (x + width - 1.5, bottom), 4, colour)
        if cell >= rubble and cell < length - 1:
            canvas.box((x + 3, top + 1.5), (x + width - 3, bottom - 1.5), 3, PAPER)
    for index, (cell, is_inside) in enumerate(zip(cells, inside, strict=True)):
        place = (left + (float(cell) + 0.5) * width, top + (bottom - top) * (index + 0.5) / len(cells))
        escaped = cell >= length - 1
        canvas.disc(place, 9, agent_colour(index) if is_inside or escaped else INK)
        if not is_inside:
            canvas.disc(place, 6.5, PAPER if escaped else RUBBLE)
    return canvas.picture()
