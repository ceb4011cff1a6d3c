"""Gaussian, squashed Gaussian and augmented actions: tables worked by hand, SciPy, quadrature, extremes."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate

from dressage.equations.distributions import (
    LOG_STD_MAX,
    LOG_STD_MIN,
    AugmentedAction,
    DiagGaussian,
    SquashedGaussian,
)
from dressage.errors import ConfigError
from tests.oracles.plain_distributions import (
    gaussian_divergence_by_quadrature,
    gaussian_log_prob,
    squashed_cdf,
)
from tests.strategies import numbers

SQUASHED_TABLE = [
    (0.0, -0.9189385, 0.0),
    (0.5, -0.8037095, -0.2402290),
    (-1.0, -0.5513769, -0.8675617),
    (3.0, -0.8002815, -4.6186570),
    (10.0, -32.3052329, -18.6137056),
    (20.0, -162.3052329, -38.6137056),
    (-50.0, -1152.3052329, -98.6137056),
    (100.0, -4802.3052329, -198.6137056),
]
EXTREME_LOG_STDS = [-np.inf, -1e30, -104.0, LOG_STD_MIN, LOG_STD_MAX, 89.0, 1e30, np.inf]

log_prob_of = jax.jit(lambda mean, log_std, action: DiagGaussian(mean, log_std).log_prob(action))


def unit_squashed(mean=0.0, std=1.0):
    return SquashedGaussian(jnp.array([mean]), jnp.log(jnp.array([std])), -1.0, 1.0)


@pytest.mark.parametrize(("u", "log_prob", "log_slope"), SQUASHED_TABLE)
def test_the_squashed_log_density_of_the_table(u, log_prob, log_slope):
    u = jnp.array([u])
    assert unit_squashed().log_prob(u) == pytest.approx(log_prob, rel=1e-5)
    base = DiagGaussian(jnp.zeros(1), jnp.zeros(1)).log_prob(u)
    assert base - unit_squashed().log_prob(u) == pytest.approx(log_slope, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(("u", "slope"), [(0.0, 0.0), (30.0, -2.0), (-30.0, 2.0), (500.0, -2.0)])
def test_the_squash_correction_keeps_its_gradient_where_tanh_has_saturated(u, slope):
    def correction(u):
        distribution = unit_squashed()
        return distribution.base.log_prob(u[None]) - distribution.log_prob(u[None])

    assert jax.grad(correction)(u) == pytest.approx(slope, rel=1e-5)


def test_bounds_enter_the_action_and_the_density():
    distribution = SquashedGaussian(np.array([0.3]), np.log([0.5]), -2.0, 6.0)
    assert distribution.squash(np.array([1.2])) == pytest.approx(5.3346184, rel=1e-6)
    assert distribution.log_prob(np.array([1.2])) == pytest.approx(-2.0447078, rel=1e-5)


def test_three_squashed_dimensions_add_up():
    columns = np.array([[0.4, -0.1, 0.6, -1, 1], [-2.5, 0.2, 1.5, 0, 10], [15, 1, 0.2, -3, -1]]).T
    u, mean, std, low, high = columns
    distribution = SquashedGaussian(mean, np.log(std), low, high)
    assert distribution.log_prob(u) == pytest.approx(-2422.2219284, rel=1e-6)
    np.testing.assert_allclose(distribution.squash(u), [0.3799490, 0.0669285, -1.0], rtol=1e-5)
    alone = [
        SquashedGaussian(m[None], np.log(s)[None], lo, hi).log_prob(x[None])
        for x, m, s, lo, hi in zip(u, mean, std, low, high, strict=True)
    ]
    np.testing.assert_allclose(alone, [-0.5994282, -0.9267052, -2420.6957950], rtol=1e-5)


@pytest.mark.parametrize(
    ("mean", "std", "low", "high"), [(0.3, 0.5, -2, 6), (-1, 1.2, 0, 1), (0, 0.3, -1, 1)]
)
def test_the_squashed_density_integrates_to_its_distribution_function(mean, std, low, high):
    distribution = SquashedGaussian(np.array([mean]), np.log([std]), low, high)
    density = jax.jit(lambda a: jnp.exp(distribution.log_prob(distribution.unsquash(a[None]))))
    edges = low + (high - low) * np.array([0.001, 0.25, 0.6, 0.999])
    for start, end in zip(edges[:-1], edges[1:], strict=True):
        mass, _ = integrate.quad(lambda a: float(density(a)), start, end, epsabs=1e-5)
        expected = squashed_cdf(end, mean, std, low, high) - squashed_cdf(start, mean, std, low, high)
        assert mass == pytest.approx(expected, abs=2e-4)


@given(numbers((16, 2), -100, 100))
def test_squashed_actions_lie_inside_the_bounds(u):
    low, high = np.array([-0.1, 3.0], np.float32), np.array([0.3, 3.1], np.float32)
    actions = np.asarray(SquashedGaussian(np.zeros(2), 0.0, low, high).squash(u))
    assert actions.dtype == np.float32
    assert (actions >= low).all()
    assert (actions <= high).all()


def test_an_action_at_a_bound_has_a_finite_density():
    distribution = SquashedGaussian(np.zeros(1), np.zeros(1), -2.0, 6.0)
    for bound in (-2.0, 6.0):
        u = distribution.unsquash(np.array([bound]))
        assert abs(u[0]) == pytest.approx(7.25, abs=0.05)
        assert np.isfinite(distribution.log_prob(u))
    np.testing.assert_allclose(distribution.unsquash(distribution.squash(np.array([1.2]))), [1.2], rtol=1e-4)


def test_samples_and_mode_of_a_squashed_gaussian_are_unsquashed():
    distribution = SquashedGaussian(np.full((5000, 1), 3.0), np.zeros(1), -1.0, 1.0)
    np.testing.assert_array_equal(distribution.mode(), np.full((5000, 1), 3.0))
    assert distribution.sample(jax.random.key(0)).max() > 4
    assert distribution.entropy()[0] == pytest.approx(0.5 * np.log(2 * np.pi * np.e), rel=1e-5)


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        ([-1.0, 0.0], [1.0, np.inf], "action dimension 1 has bounds"),
        ([-1.0, 2.0], [1.0, 2.0], "action dimension 1 has bounds"),
        ([-3.4e38, 0.0], [1.0, 1.0], "action dimension 0 has bounds"),
    ],
)
def test_bounds_that_cannot_be_squashed_into_are_refused_by_dimension(low, high, text):
    with pytest.raises(ConfigError, match=text):
        SquashedGaussian(np.zeros(2), 0.0, np.array(low), np.array(high))


def test_the_divergence_of_squashed_gaussians_is_the_base_one_and_needs_equal_bounds():
    means = np.array([0.3, -1.0]), np.array([0.1, 0.4])
    p, q = (SquashedGaussian(mean, -0.5, -1.0, 1.0) for mean in means)
    base = DiagGaussian(means[0], -0.5).kl(DiagGaussian(means[1], -0.5))
    assert p.kl(q) == base
    with pytest.raises(ValueError, match="KL needs equal bounds"):
        p.kl(SquashedGaussian(means[1], -0.5, -1.0, 2.0))


def test_traced_bounds_are_taken_as_they_are():
    def log_prob(low, high):
        return SquashedGaussian(jnp.zeros(2), 0.0, low, high).log_prob(jnp.array([0.5, -1.0]))

    assert jax.jit(log_prob)(-np.ones(2), np.ones(2)) == pytest.approx(-0.8037095 - 0.5513769, rel=1e-5)
    assert np.isfinite(jax.grad(log_prob)(-jnp.ones(2), jnp.ones(2))).all()


def test_a_clipped_action_keeps_the_density_of_what_was_sampled():
    action, executed = np.array([1.7, -0.2]), np.array([1.0, -0.2])
    old = DiagGaussian(np.array([0.9, 0.1]), np.log([0.5, 0.3]))
    new = DiagGaussian(np.array([1.1, 0.1]), np.log([0.5, 0.3]))
    assert old.log_prob(action) == pytest.approx(-1.7207571, rel=1e-5)
    assert old.log_prob(executed) == pytest.approx(-0.4607571, rel=1e-5)
    assert np.exp(new.log_prob(action) - old.log_prob(action)) == pytest.approx(1.7506725, rel=1e-4)
    # One clipped density in the ratio gives the fault that the case warns of.
    assert np.exp(new.log_prob(executed) - old.log_prob(action)) != pytest.approx(1.7506725, rel=0.1)


@pytest.mark.parametrize("log_std", EXTREME_LOG_STDS)
def test_the_deviation_stays_positive_and_finite_whatever_the_optimiser_reached(log_std):
    def all_of(log_std):
        distribution = DiagGaussian(jnp.array([0.3, -0.2]), log_std)
        other = DiagGaussian(jnp.array([0.1, 0.4]), jnp.zeros(2))
        action = distribution.sample_from(jnp.array([1.5, -0.7]))
        parts = (
            distribution.log_prob(action),
            distribution.entropy(),
            distribution.kl(other),
            other.kl(distribution),
        )
        return distribution.std.sum() + sum(parts)

    value, gradient = jax.value_and_grad(all_of)(jnp.full(2, log_std))
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()
    std = DiagGaussian(np.zeros(2), np.full(2, log_std)).std
    assert ((std > 0) & np.isfinite(std)).all()


def test_sampling_density_entropy_and_divergence_share_one_bound():
    wild, bounded = (DiagGaussian(np.array([0.2]), np.array([s])) for s in (1e6, LOG_STD_MAX))
    noise = np.array([0.7])
    np.testing.assert_array_equal(wild.sample_from(noise), bounded.sample_from(noise))
    assert wild.log_prob(noise) == bounded.log_prob(noise)
    assert wild.entropy() == bounded.entropy()
    assert wild.kl(bounded) == 0


@given(numbers((6, 3)), numbers((3,), -3, 2), numbers((6, 3)))
def test_the_log_density_matches_scipy(mean, log_std, action):
    expected = gaussian_log_prob(action, mean, np.exp(log_std.astype(np.float64)))
    np.testing.assert_allclose(log_prob_of(mean, log_std, action), expected, rtol=1e-4, atol=1e-4)


@given(*[st.floats(-2, 2)] * 2, *[st.floats(-1.5, 1)] * 2)
def test_the_divergence_matches_quadrature_and_is_not_negative(mean, other_mean, log_std, other_log_std):
    p = DiagGaussian(np.array([mean]), np.array([log_std]))
    q = DiagGaussian(np.array([other_mean]), np.array([other_log_std]))
    expected = gaussian_divergence_by_quadrature(mean, np.exp(log_std), other_mean, np.exp(other_log_std))
    assert p.kl(q) == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert p.kl(q) >= 0


def test_small_divergences_are_not_rounding():
    p, q = DiagGaussian(np.zeros(1), np.zeros(1)), DiagGaussian(np.array([1e-4]), np.array([1e-4]))
    # Half of dmean^2 + 2 dlogstd^2, to second order.
    assert p.kl(q) == pytest.approx(1.5e-8, rel=1e-3)


def test_the_divergence_is_the_mean_difference_of_log_densities():
    p = DiagGaussian(np.broadcast_to([0.3, -0.2], (100_000, 2)), np.array([-0.5, 0.2]))
    q = DiagGaussian(np.array([0.0, 0.1]), np.array([-0.2, 0.1]))
    draws = p.sample(jax.random.key(5))
    assert np.mean(p.log_prob(draws) - q.log_prob(draws)) == pytest.approx(float(p.kl(q)[0]), abs=0.01)
    assert -np.mean(p.log_prob(draws)) == pytest.approx(float(p.entropy()[0]), abs=0.02)


@pytest.mark.parametrize("log_std_shape", [(), (3,), (4, 3), (2, 4, 3)])
def test_a_deviation_may_be_shared_or_per_row(log_std_shape):
    mean, log_std = np.ones((2, 4, 3)), np.full(log_std_shape, -0.5)
    distribution = DiagGaussian(mean, log_std)
    expected = gaussian_log_prob(0 * mean, mean, np.exp(-0.5))
    np.testing.assert_allclose(distribution.log_prob(0 * mean), expected, rtol=1e-5)
    assert distribution.entropy().shape == distribution.kl(distribution).shape == (2, 4)
    np.testing.assert_allclose(distribution.entropy(), 3 * (-0.5 + 0.5 * np.log(2 * np.pi * np.e)), rtol=1e-5)


def test_the_augmented_table_worked_by_hand():
    logits, mean, log_std = np.array([0.2, -0.4, 1, 0, -1]), np.array([0.5, 0.0]), np.array([-0.5, 0.2])
    distribution = AugmentedAction(logits, (2, 3), mean, log_std)
    indices, z = np.array([1, 0]), np.array([1.5, -0.3])
    assert distribution.discrete.log_prob(indices) == pytest.approx(-1.4450939, rel=1e-5)
    assert distribution.continuous.log_prob(z) == pytest.approx(-1.7780794 - 1.1491029, rel=1e-5)
    assert distribution.log_prob((indices, z)) == pytest.approx(-4.3722763, rel=1e-5)
    assert distribution.discrete.entropy() == pytest.approx(1.4824897, rel=1e-5)
    assert distribution.entropy() == pytest.approx(4.0203668, rel=1e-5)
    np.testing.assert_allclose(distribution.component_probs()[0], [0.64565631, 0.35434369], rtol=1e-5)


def test_the_augmented_divergence_is_the_sum_of_both_parts():
    p = AugmentedAction(np.array([0.2, -0.4]), (2,), np.zeros(1), np.zeros(1))
    q = AugmentedAction(np.array([0.0, 0.3]), (2,), np.ones(1), np.zeros(1))
    assert p.kl(q) == pytest.approx(float(p.discrete.kl(q.discrete)) + 0.5, rel=1e-5)
    assert p.kl(p) == 0


def test_an_augmented_mask_reaches_the_discrete_part():
    distribution = AugmentedAction(np.zeros(5), (2, 3), np.zeros(1), 0.0, mask=np.array([0, 1, 1, 1, 0]))
    np.testing.assert_allclose(distribution.component_probs()[1], [0.5, 0.5, 0], rtol=1e-6)
    np.testing.assert_array_equal(distribution.mode()[0], [1, 0])


@pytest.mark.slow
def test_distrax_agrees():
    mean, other_mean = jax.random.normal(jax.random.key(0), (2, 50, 3))
    log_std, other_log_std = 0.3 * jax.random.normal(jax.random.key(1), (2, 50, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        distrax = pytest.importorskip("distrax")
        peer = distrax.MultivariateNormalDiag(mean, jnp.exp(log_std))
        peer_other = distrax.MultivariateNormalDiag(other_mean, jnp.exp(other_log_std))
        squashed = distrax.Transformed(peer, distrax.Block(distrax.Tanh(), 1))
        theirs = peer.log_prob(other_mean), peer.entropy(), peer.kl_divergence(peer_other)
        theirs_squashed = squashed.log_prob(jnp.tanh(other_mean))
    ours = DiagGaussian(mean, log_std)
    np.testing.assert_allclose(ours.log_prob(other_mean), theirs[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(ours.entropy(), theirs[1], rtol=1e-5)
    np.testing.assert_allclose(ours.kl(DiagGaussian(other_mean, other_log_std)), theirs[2], rtol=1e-4)
    ours_squashed = SquashedGaussian(mean, log_std, -1.0, 1.0).log_prob(other_mean)
    np.testing.assert_allclose(ours_squashed, theirs_squashed, rtol=1e-3, atol=1e-3)
