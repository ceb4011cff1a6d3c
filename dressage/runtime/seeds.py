"""Seeds of everything that a run draws, from the run's one seed."""

import numpy as np

LEARNER = 2**31
"""Stands where a worker's number would."""


def worker_seed(seed: int, worker: int, life: int) -> int:
    """Return the seed of a worker, a different one for each of its lives.

    The first worker's first seed is the run's own, so that a run of one worker is seeded as a run without an
    engine would be.
    """
    return seed if worker == life == 0 else _drawn(seed, worker, life)


def learner_seed(seed: int) -> int:
    """Return the seed of the learner's random stream where workers have their own."""
    return _drawn(seed, LEARNER, 0)


def _drawn(seed: int, who: int, life: int) -> int:
    return int(np.random.SeedSequence((seed, who, life)).generate_state(1)[0] >> 1)
