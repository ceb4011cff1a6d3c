"""The value behind each step: the next row's inside an episode, the critic's own where it was cut."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.learning.records import Outcome
from dressage.learning.values import SPARSE, following_values

STEPS, COPIES = 32, 5
FEW = STEPS // SPARSE


def critic(features):
    """Tell apart every input: a row's own number."""
    return 1000.0 + features[..., 0]


def outcome_of(ends, terminated):
    zeros = jnp.zeros(ends.shape)
    return Outcome(None, None, zeros, terminated, ends, zeros, zeros)


@jax.jit
def compiled(values, finals, ends, terminated):
    return following_values(critic, values, finals, outcome_of(ends, terminated))


def rollout_of(ends):
    """Number what is seen in each row, and what each end was before the next episode began."""
    seen = np.arange(STEPS * COPIES, dtype=np.float32).reshape(STEPS, COPIES)
    behind = np.concatenate([seen[1:], seen[-1:] + COPIES])
    return 1000.0 + seen, np.where(ends, 5000.0 + seen, behind)[..., None]


def flags(cuts, seed):
    """Cut copies so often each, besides steps that terminate."""
    rng = np.random.default_rng(seed)
    ends, terminated = np.zeros((STEPS, COPIES), bool), np.zeros((STEPS, COPIES), bool)
    for copy, number in enumerate(cuts):
        steps = rng.permutation(STEPS - 1)
        ends[steps[: number + 2], copy] = True
        terminated[steps[number : number + 2], copy] = True
    return ends, terminated


@pytest.mark.parametrize(
    "cuts",
    [
        (0, 0, 0, 0, 0),
        (1, 0, 1, 0, 0),
        (2, 1, 0, 3, FEW),
        (FEW, FEW, FEW, FEW, FEW),
        (FEW + 1, 0, 0, 0, 0),
        (STEPS - 3, 1, 0, 7, 2),
    ],
    ids=str,
)
def test_every_step_is_followed_by_the_next_row_or_by_what_the_critic_says_of_where_it_was_cut(cuts):
    ends, terminated = flags(cuts, seed=len(cuts))
    values, finals = rollout_of(ends)
    found = np.asarray(compiled(values, finals, ends, terminated))
    for step, copy in np.argwhere(~terminated):
        cut = step == STEPS - 1 or ends[step, copy]
        expected = 1000.0 + finals[step, copy, 0] if cut else values[step + 1, copy]
        assert found[step, copy] == expected, (step, copy)


def test_under_vmap_every_row_has_its_own_cuts():
    marks = [flags(cuts, seed=7) for cuts in ((0,) * COPIES, (2,) * COPIES, (STEPS - 3,) * COPIES)]
    rows = [(*rollout_of(ends), ends, terminated) for ends, terminated in marks]
    together = jax.vmap(compiled)(*(np.stack(part) for part in zip(*rows, strict=True)))
    for found, row in zip(together, rows, strict=True):
        bootstrapped = ~row[-1]
        np.testing.assert_array_equal(np.asarray(found)[bootstrapped], compiled(*row)[bootstrapped])
