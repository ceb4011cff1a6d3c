"""The losses of proximal policy optimisation, case by case."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dressage.equations.surrogate import approx_kl, clipped_surrogate, clipped_value_loss
from tests.strategies import numbers

surrogate = jax.jit(clipped_surrogate)
value_loss = jax.jit(clipped_value_loss)
kl_estimate = jax.jit(approx_kl)


@pytest.mark.parametrize(
    ("ratio", "advantage", "objective", "slope"),
    [
        (1.0, 2.0, 2.0, 2.0),  # nothing moved: the policy gradient itself
        (1.1, 2.0, 2.2, 2.2),
        (1.5, 2.0, 2.4, 0.0),  # gain is capped
        (0.5, 2.0, 1.0, 1.0),  # loss of a good action counts in full
        (0.5, -2.0, -1.6, 0.0),
        (1.5, -2.0, -3.0, -3.0),
        (1.0, 0.0, 0.0, 0.0),
    ],
)
def test_the_objective_and_its_slope_in_each_branch(ratio, advantage, objective, slope):
    log_prob = jnp.log(ratio)
    assert surrogate(log_prob, 0.0, advantage, 0.2) == pytest.approx(objective, rel=1e-5)
    assert jax.grad(clipped_surrogate)(log_prob, 0.0, advantage, 0.2) == pytest.approx(slope, rel=1e-5)


@given(numbers((9,), -3, 3), numbers((9,), -3, 3), numbers((9,)), st.sampled_from([0.1, 0.2, 0.3]))
def test_the_objective_is_the_smaller_of_both_products(log_prob, old_log_prob, advantages, clip_eps):
    ratio = np.exp(log_prob.astype(np.float64) - old_log_prob)
    products = ratio * advantages, np.clip(ratio, 1 - clip_eps, 1 + clip_eps) * advantages
    objective = surrogate(log_prob, old_log_prob, advantages, clip_eps)
    np.testing.assert_allclose(objective, np.minimum(*products), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("log_ratio", [-1e30, -300.0, -20.0, 0.0, 20.0, 300.0, 1e30])
@pytest.mark.parametrize("advantage", [-1.0, 0.0, 1.0])
def test_a_policy_far_from_the_old_one_gives_finite_numbers_and_gradients(log_ratio, advantage):
    value, slope = jax.value_and_grad(clipped_surrogate)(log_ratio, 0.0, advantage, 0.2)
    estimate, kl_slope = jax.value_and_grad(approx_kl)(log_ratio, 0.0)
    assert np.isfinite([value, slope, estimate, kl_slope]).all()


@pytest.mark.parametrize(
    ("value", "old", "target", "loss"),
    [
        (1.0, 1.0, 3.0, 2.0),  # unmoved: half the square of 2
        (1.1, 1.0, 3.0, 1.805),
        (2.0, 1.0, 3.0, 1.62),  # moved too far towards the target: as if at 1.2
        (0.0, 1.0, 3.0, 4.5),  # moved away: counts in full
    ],
)
def test_the_value_loss_in_each_branch(value, old, target, loss):
    assert value_loss(value, old, target, 0.2) == pytest.approx(loss, rel=1e-5)


def test_infinite_value_clipping_gives_half_the_squared_error():
    values, targets = np.array([1.0, 5.0, -2.0]), np.array([0.0, 1.0, 2.0])
    np.testing.assert_allclose(value_loss(values, 100 * values, targets, np.inf), [0.5, 8.0, 8.0], rtol=1e-5)
    slopes = jax.vmap(jax.grad(clipped_value_loss), in_axes=(0, 0, 0, None))(values, values, targets, np.inf)
    np.testing.assert_allclose(slopes, values - targets, rtol=1e-6)


@given(numbers((9,)), numbers((9,)), numbers((9,)), st.sampled_from([0.1, 0.2, 5.0]))
def test_the_value_loss_is_never_below_the_plain_one(values, old_values, targets, clip_eps):
    loss = np.asarray(value_loss(values, old_values, targets, clip_eps))
    assert (loss >= 0.5 * (values - targets) ** 2 - 1e-4).all()


@pytest.mark.parametrize(
    ("log_ratio", "estimate"), [(0.0, 0.0), (np.log(2), 1 - np.log(2)), (-np.log(2), np.log(2) - 0.5)]
)
def test_the_divergence_estimate_by_hand(log_ratio, estimate):
    assert kl_estimate(log_ratio, 0.0) == pytest.approx(estimate, rel=1e-5)


@given(numbers((9,), -5, 5), numbers((9,), -5, 5))
def test_the_divergence_estimate_is_never_negative(log_prob, old_log_prob):
    assert (np.asarray(kl_estimate(log_prob, old_log_prob)) >= 0).all()


def test_the_mean_estimate_is_the_divergence_of_old_from_new():
    old, new = np.array([0.2, 0.5, 0.3]), np.array([0.3, 0.3, 0.4])
    estimates = kl_estimate(np.log(new), np.log(old))
    assert np.sum(old * np.asarray(estimates)) == pytest.approx(np.sum(old * np.log(old / new)), rel=1e-4)


@pytest.mark.parametrize("shape", [(4,), (4, 3), (4, 3, 2)])
def test_losses_keep_the_shape_of_their_samples(shape):
    samples = np.ones(shape)
    for loss in (surrogate(samples, samples, samples, 0.2), value_loss(samples, samples, samples, 0.2)):
        assert loss.shape == shape
    assert kl_estimate(samples, samples).shape == shape
