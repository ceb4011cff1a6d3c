"""Projection on linear constraints by trying every set of active ones; slow, plain, in float64."""

import itertools

import numpy as np


def nearest_point(proposal, normals, offsets, low, high):
    """Return the point nearest to the proposal (clipped into the box), or None where no point is lawful."""
    proposal = np.clip(proposal, low, high)
    size = len(proposal)
    rows = np.concatenate([normals, np.eye(size), -np.eye(size)]).astype(np.float64)
    sides = np.concatenate([offsets, high, -low]).astype(np.float64)
    sets = [c for number in range(size + 1) for c in itertools.combinations(range(len(rows)), number)]
    # The nearest point of each flat on which some of the constraints hold with equality.
    points = [proposal + np.linalg.pinv(rows[[*c]]) @ (sides[[*c]] - rows[[*c]] @ proposal) for c in sets]
    lawful = [point for point in points if np.all(rows @ point <= sides + 1e-9)]
    return min(lawful, key=lambda point: np.sum((point - proposal) ** 2), default=None)
