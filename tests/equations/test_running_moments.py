"""Running moments: the hand-worked merges, cancellation, masks, huge batches, and the normaliser."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from dressage.equations.statistics import RunningMoments
from tests.strategies import batch_lists, numbers

FIRST, SECOND = np.array([2, 4, 4, 4, 5, 5, 7, 9]), np.array([-1, 3])

update = jax.jit(RunningMoments.update)
merge = jax.jit(RunningMoments.merge)
NOTHING = RunningMoments.zeros((2,))


def moments_of(*batches, shape=()):
    moments = RunningMoments.zeros(shape)
    for batch in batches:
        moments = update(moments, batch)
    return moments


def assert_moments(moments, count, mean, var, rtol=1e-5):
    np.testing.assert_allclose(moments.count, count)
    np.testing.assert_allclose(moments.mean, mean, rtol=rtol)
    np.testing.assert_allclose(moments.var, var, rtol=rtol)


def test_the_hand_worked_batches_give_exact_first_moments_and_the_pooled_second_ones():
    first = moments_of(FIRST)
    assert (first.count, first.mean, first.var) == (8, 5, 4)
    assert_moments(first.update(SECOND), 10, 4.2, 6.56)


def test_one_value_at_a_time_gives_the_same():
    values = np.concatenate([FIRST, SECOND]).astype(np.float32)
    moments = RunningMoments.zeros()
    for value in values:
        moments = update(moments, value[None])
    assert_moments(moments, 10, 4.2, 6.56)


def test_a_large_mean_does_not_cancel_the_variance():
    moments = moments_of(np.array([10000, 10001, 10002], np.float32))
    assert moments.var == pytest.approx(0.6666667, rel=1e-6)
    assert np.sqrt(moments.var) == pytest.approx(0.8164966, rel=1e-6)


def test_a_fractional_starting_count_enters_by_the_same_rule():
    start = RunningMoments(jnp.asarray(1e-4), jnp.zeros(()), jnp.ones(()))
    assert_moments(start.update(FIRST), 8.0001, 4.9999375, 4.000275, rtol=1e-6)


def test_ranks_that_share_a_snapshot_summarise_their_own_data_and_merge_it_once():
    snapshot = RunningMoments(jnp.asarray(100.0), jnp.asarray(1.0), jnp.asarray(4.0))
    ranks = [moments_of(np.array(batch)) for batch in ([0, 2, 4], [1, 1, 1], [5, 7, 9])]
    merged = ranks[0].merge(ranks[1]).merge(ranks[2])
    assert_moments(snapshot.merge(merged), 109, 1.19266055, 4.79774430)
    full = [snapshot.merge(rank) for rank in ranks]
    # Merging whole states counts the snapshot three times: the known wrong answer.
    assert_moments(full[0].merge(full[1]).merge(full[2]), 309, 1.06796117, 4.28987966)


@given(batch_lists())
def test_order_and_size_of_batches_do_not_matter(case):
    samples, cuts = case
    batch_of = np.searchsorted(cuts, np.arange(len(samples)), side="right")
    parts = [update(NOTHING, samples, batch_of == batch) for batch in range(len(cuts) + 1)]
    forward = backward = NOTHING
    for part, mirrored in zip(parts, reversed(parts), strict=True):
        forward, backward = merge(forward, part), merge(mirrored, backward)
    exact = samples.astype(np.float64)
    for moments in (forward, backward):
        np.testing.assert_allclose(moments.mean, exact.mean(0), rtol=1e-5, atol=1e-5)
        # A mean near 3000 is rounded to 2.4e-4, and each merge squares a difference of two such means.
        np.testing.assert_allclose(moments.var, exact.var(0), rtol=5e-3, atol=1e-4)
        assert moments.count == len(samples)


@given(numbers((8, 2)))
def test_invalid_samples_leave_no_trace(batch):
    valid = np.array([1, 0, 1, 1, 0, 0, 1, 0], bool)
    spoilt = np.where(valid[:, None], batch, np.nan)
    masked = update(NOTHING, spoilt, valid)
    kept = batch[valid].astype(np.float64)
    assert masked.count == 4
    np.testing.assert_allclose(masked.mean, kept.mean(0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(masked.var, kept.var(0), rtol=1e-4, atol=1e-5)


def test_a_batch_without_a_valid_sample_changes_no_bit():
    moments = moments_of(FIRST)
    for untouched in (update(moments, np.full(3, np.nan), np.zeros(3)), moments.update(np.zeros(0))):
        assert jax.tree.leaves(untouched) == jax.tree.leaves(moments)
    np.testing.assert_array_equal(update(RunningMoments.zeros(), np.ones(2), np.zeros(2)).mean, 0)


@pytest.mark.parametrize(
    ("leading", "shape"), [((12,), (3,)), ((4, 3), (3,)), ((2, 3, 2), (3,)), ((6,), (2, 3))]
)
def test_any_leading_axes_are_samples(leading, shape):
    samples = np.random.default_rng(0).normal(3, 2, (*leading, *shape))
    axes = tuple(range(len(leading)))
    valid = np.random.default_rng(1).random(leading) < 0.5
    moments = update(RunningMoments.zeros(shape), samples)
    assert_moments(moments, np.prod(leading), samples.mean(axes), samples.var(axes), rtol=1e-4)
    masked = update(RunningMoments.zeros(shape), samples, valid)
    assert_moments(masked, valid.sum(), samples[valid].mean(0), samples[valid].var(0), rtol=1e-4)


@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 1.0), (1000.0, 1.0), (-3.0, 1e-3), (1e5, 10.0)])
def test_a_batch_of_a_million_is_accurate_in_single_precision(mean, deviation):
    samples = np.random.default_rng(0).normal(mean, deviation, (1_000_000, 2)).astype(np.float32)
    moments = update(RunningMoments.zeros((2,)), samples)
    exact = samples.astype(np.float64)
    np.testing.assert_allclose(moments.mean, exact.mean(0), rtol=1e-6, atol=1e-4 * deviation)
    np.testing.assert_allclose(moments.var, exact.var(0), rtol=1e-4)


def test_a_thousand_batches_stay_accurate():
    batches = np.random.default_rng(0).normal(50, 20, (1000, 64)).astype(np.float32)
    moments, _ = jax.lax.scan(lambda m, batch: (m.update(batch), None), RunningMoments.zeros(), batches)
    assert_moments(moments, 64_000, batches.astype(np.float64).mean(), batches.astype(np.float64).var(), 1e-4)


@pytest.mark.parametrize("constant", [5.0, 1000.1, -37.7, 0.1, 0.0])
def test_a_constant_dimension_normalises_to_zero_and_stays_finite_when_it_moves(constant):
    moments = update(RunningMoments.zeros(), np.full(128, constant, np.float32))
    moments = update(moments, np.full(7, constant, np.float32))
    assert moments.normalize(np.float32(constant)) == 0
    moved = moments.normalize(np.float32(constant + 1.0))
    assert moved == 10
    assert moments.normalize(np.float32(constant - 1.0), clip=5.0) == -5


def test_a_small_move_of_a_constant_dimension_is_finite_and_clipped():
    moved = moments_of(np.full(8, 5.0)).normalize(5.001)
    assert 0 < moved <= 10


def test_normalising_before_any_data_only_clips():
    np.testing.assert_array_equal(
        RunningMoments.zeros().normalize(np.array([-50.0, 0.5, 50.0])), [-10, 0.5, 10]
    )


def test_normalised_data_has_zero_mean_and_unit_deviation_and_comes_back():
    samples = np.random.default_rng(0).normal(50, 20, (500, 3)).astype(np.float32)
    moments = moments_of(samples, shape=(3,))
    normalized = np.asarray(moments.normalize(samples))
    np.testing.assert_allclose(normalized.mean(0), 0, atol=1e-4)
    np.testing.assert_allclose(normalized.std(0), 1, rtol=1e-4)
    np.testing.assert_allclose(moments.denormalize(normalized), samples, rtol=1e-4)


def test_bytes_do_not_wrap():
    moments = moments_of(np.array([250, 10], np.uint8))
    assert (moments.mean, moments.var) == (130, 14400)
    assert moments.normalize(np.uint8(250)) == pytest.approx(1)


def test_moments_work_under_vmap_and_grad():
    batches = np.stack([FIRST, FIRST[::-1] + 1.0])
    stacked = jax.jit(jax.vmap(RunningMoments.zeros().update))(batches)
    assert_moments(stacked, [8, 8], [5, 6], [4, 4])
    slope = jax.jit(jax.grad(lambda batch: RunningMoments.zeros().update(batch).mean))
    np.testing.assert_allclose(slope(jnp.asarray(batches[0])), 1 / 8, rtol=1e-6)
    constant = jax.jit(jax.grad(lambda batch: RunningMoments.zeros().update(batch).normalize(batch).sum()))
    assert np.isfinite(constant(jnp.ones(8))).all()


def test_a_batch_of_another_shape_is_refused():
    with pytest.raises(
        ValueError, match=r"batch of shape \(4, 2\) does not end in the moments' shape \(3,\)"
    ):
        RunningMoments.zeros((3,)).update(np.zeros((4, 2)))


def test_flags_that_do_not_fit_the_batch_are_refused():
    with pytest.raises(ValueError, match=r"valid of shape \(3,\) does not flag a batch of shape \(4, 2\)"):
        RunningMoments.zeros((2,)).update(np.zeros((4, 2)), np.ones(3))
