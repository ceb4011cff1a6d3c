"""Sequences that a recurrent network learns from: how they are cut, and what memory they start from."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.learning.forward import critic_of, evaluate_batch, init_network, start_memory, step_policy
from dressage.learning.records import Observed, Outcome
from dressage.learning.scan_driver import remember
from dressage.learning.sequences import LONGEST, Sequences
from dressage.networks import RecurrentActorCritic


@pytest.mark.parametrize(
    ("steps", "copies", "parts", "length", "pieces"),
    [
        (16, 4, 4, 16, 1),
        (40, 2, 4, 14, 3),
        (6, 1, 3, 2, 3),
        (5, 1, 9, 1, 5),
        (1, 4, 4, 1, 1),
        (7, 2, 4, 4, 2),
    ],
)
def test_sequences_are_as_long_as_leaves_enough_of_them(steps, copies, parts, length, pieces):
    cut = Sequences.of(steps, copies, parts)
    assert (cut.length, cut.pieces) == (length, pieces)
    assert len(cut.kept) == pieces * copies >= min(parts, steps * copies)
    assert cut.length <= LONGEST


def test_records_are_cut_copy_by_copy_and_filled_up_with_zeros():
    records = jnp.arange(1, 11).reshape(5, 2)  # copy 0 has the odd numbers
    cut = Sequences.of(5, 2, 6)  # six sequences of at most two steps
    assert cut.length == 2
    np.testing.assert_array_equal(cut.arrange(records), [[1, 3], [2, 4], [5, 7], [6, 8], [9, 0], [10, 0]])
    np.testing.assert_array_equal(cut.first(records), [1, 2, 5, 6, 9, 10])


def test_sequences_of_copies_that_rested_all_along_are_left_out():
    rows = np.flatnonzero(np.array([[True] * 3, [True, False, False]]).ravel())
    cut = Sequences.of(2, 3, 4, rows)
    assert (cut.length, cut.kept) == (1, (0, 1, 2, 3))
    np.testing.assert_array_equal(cut.arrange(jnp.arange(6).reshape(2, 3)), [[0], [1], [2], [3]])
    # One step of one copy is one sequence, whatever number of parts is asked for.
    assert Sequences.of(1, 3, 4, np.array([0])).kept == (0,)


def test_memory_restarts_behind_ends_and_gaps_but_not_at_a_sequences_first_step():
    ends = jnp.array([[False], [True], [False], [False], [True], [False]])
    valid = jnp.array([[True], [True], [False], [True], [True], [True]])
    cut = Sequences.of(6, 1, 2)
    assert cut.length == 3
    # Behind the end of step 1 and the gap of step 2; step 3 begins a sequence, from the memory that acted.
    np.testing.assert_array_equal(cut.restarts(ends, valid), [[False, False, True], [False, False, True]])
    np.testing.assert_array_equal(cut.restarts(ends, None), [[False, False, True], [False, False, True]])


class HalvingCell(nn.RNNCellBase):
    """The toy cell h <- h / 2 + x, which is what it puts out."""

    features: int = 1

    def __call__(self, memory, inputs):
        memory = 0.5 * memory + inputs
        return memory, memory


def test_a_cell_counted_by_hand_starts_anew_behind_an_end_and_goes_on_from_stored_memory():
    # h = 0.5 h + x over 1..5, an end after the second: 1, 2.5, 3, 5.5, 7.75; from the fourth step on the
    # memory is the stored 3, where an empty one would give 4 and 7.
    memory, stored, shown = jnp.zeros((1, 1)), [], []
    ends = [False, True, False, False, False]
    for step, ended in enumerate(ends):
        stored.append(memory)
        after, output = HalvingCell()(memory, jnp.full((1, 1), step + 1.0))
        shown.append(float(output[0, 0]))
        outcome = Outcome(Observed(jnp.zeros((1, 1))), None, None, None, jnp.array([ended]), None, None)
        memory = remember((outcome,), (after,))[0].memory
    assert shown == [1, 2.5, 3, 5.5, 7.75]
    records = jnp.arange(1.0, 6.0).reshape(5, 1, 1)
    cut = Sequences.of(5, 1, 2)  # three steps and two
    assert cut.length == 3
    features, first = cut.arrange(records), cut.first(jnp.stack(stored))
    np.testing.assert_array_equal(first, [[0], [3]])
    restarts = cut.restarts(jnp.array(ends)[:, None], None)
    rows = []
    for piece in range(2):
        memory = first[piece]
        for step in range(3):
            memory = jnp.where(restarts[piece, step], 0.0, memory)
            memory, output = HalvingCell()(memory, features[piece, step])
            rows.append(float(output[0]))
    assert rows[:5] == [1, 2.5, 3, 5.5, 7.75]


def test_a_network_learns_from_sequences_what_it_acted_step_by_step():
    network = RecurrentActorCritic(3, 0, (4, 5), "tanh", "lecun_normal")
    params = init_network(network, jax.random.key(0), 2)
    steps, copies = 7, 2
    features = jax.random.normal(jax.random.key(1), (steps, copies, 2))
    ends = jnp.zeros((steps, copies), bool).at[2, 0].set(True).at[4, 1].set(True)
    act = jax.jit(lambda seen, memory: step_policy(network, params, seen, memory))
    value = jax.jit(lambda seen, memory: critic_of(network, params)((seen, memory)))
    memory, memories, logits, values = start_memory(network, (copies,)), [], [], []
    for step in range(steps):
        memories.append(memory)
        values.append(value(features[step], memory))
        memory, (output, _) = act(features[step], memory)
        logits.append(output)
        memory = jax.tree.map(lambda leaf, step=step: jnp.where(ends[step][:, None], 0.0, leaf), memory)
    cut = Sequences.of(steps, copies, 6)
    assert cut.length == 3
    stored = jax.tree.map(lambda *leaves: jnp.stack(leaves), *memories)
    (outputs, _), learned = jax.jit(lambda *args: evaluate_batch(network, params, *args))(
        cut.arrange(features), cut.first(stored), cut.restarts(ends, None)
    )
    there = np.asarray(cut.arrange(jnp.ones((steps, copies), bool))).ravel()
    np.testing.assert_allclose(
        outputs[there], cut.arrange(jnp.stack(logits)).reshape(-1, 3)[there], rtol=1e-5, atol=1e-6
    )
    np.testing.assert_allclose(
        learned[there], cut.arrange(jnp.stack(values)).ravel()[there], rtol=1e-5, atol=1e-6
    )
