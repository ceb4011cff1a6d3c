"""Learning-rate schedules, and the count of optimiser steps that they run over."""

import re

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dressage.equations.schedules import (
    adapt_learning_rate,
    linear_decay,
    num_optimizer_steps_for_timesteps,
)

decay = jax.jit(linear_decay)
adapt = jax.jit(adapt_learning_rate)


@pytest.mark.parametrize(
    ("step", "rate"), [(0, 3e-4), (1, 2.9765625e-4), (64, 1.5e-4), (127, 2.34375e-6), (128, 0), (1000, 0)]
)
def test_linear_decay_by_hand(step, rate):
    assert decay(step, 128, 3e-4) == pytest.approx(rate, rel=1e-5)


@given(st.integers(1, 10_000_000), st.floats(0, 1))
def test_linear_decay_is_positive_before_the_end_and_never_negative(total, fraction):
    step = min(int(fraction * total), total - 1)
    assert decay(step, total, 1.0) > 0
    assert decay(total, total, 1.0) == 0


def test_schedules_work_under_vmap_and_grad():
    rates = jax.vmap(linear_decay, in_axes=(0, None, None))(np.arange(4), 4, 1.0)
    np.testing.assert_allclose(rates, [1, 0.75, 0.5, 0.25])
    assert jax.grad(linear_decay, 2)(1, 4, 2.0) == 0.75
    assert jax.grad(adapt_learning_rate)(1e-3, 0.5, 0.01) == pytest.approx(1 / 1.5)


@pytest.mark.parametrize(
    ("kl", "rate"),
    [
        (0.0201, 1e-3 / 1.5),
        (0.02, 1e-3),
        (0.017, 1e-3),
        (0.005, 1e-3),
        (0.00499, 1.5e-3),
        (0.0, 1e-3),
        (np.nan, 1e-3),
        (np.inf, 1e-3 / 1.5),
    ],
)
def test_the_rate_follows_the_divergence(kl, rate):
    assert adapt(1e-3, kl, 0.01) == pytest.approx(rate, rel=1e-6)


def test_ranks_that_decide_on_their_mean_stay_together():
    divergences = np.array([0.004, 0.030])
    assert adapt(1e-3, divergences.mean(), 0.01) == pytest.approx(1e-3, rel=1e-6)
    apart = adapt(1e-3, divergences, 0.01)
    assert apart[0] / apart[1] == pytest.approx(2.25, rel=1e-5)


def test_the_rate_stays_within_its_limits():
    assert adapt(1.2e-5, 1.0, 0.01) == pytest.approx(1e-5)
    assert adapt(9e-3, 0.001, 0.01) == pytest.approx(1e-2)
    assert adapt(1e-3, 1.0, 0.01, 10.0, 5e-4, 1.0) == pytest.approx(5e-4)


@pytest.mark.parametrize(
    ("timesteps", "rollout_length", "epochs", "requested", "steps"),
    [
        (1024, 128, 4, 4, 128),
        (1000, 128, 4, 4, 128),
        (130, 128, 2, 4, 12),
        (64, 128, 4, 4, 16),
        (10, 10, 1, 4, 4),
        (10, 10, 3, 16, 30),
        (7, 3, 2, 2, 10),
        (0, 128, 4, 4, 0),
        (1e6, 1000, 4, 4, 16000),
        (2**40, 2**10, 1, 1, 2**30),
    ],
)
def test_optimizer_steps_by_hand(timesteps, rollout_length, epochs, requested, steps):
    counted = num_optimizer_steps_for_timesteps(timesteps, rollout_length, epochs, requested)
    assert counted == steps
    assert type(counted) is int


@given(st.integers(0, 300), st.integers(1, 40), st.integers(1, 3), st.integers(1, 50))
def test_optimizer_steps_equal_a_count_over_real_minibatches(timesteps, rollout_length, epochs, requested):
    counted, left = 0, timesteps
    while left:
        samples = min(rollout_length, left)
        parts = [part for part in np.array_split(np.arange(samples), requested) if len(part)]
        counted += epochs * len(parts)
        left -= samples
    assert num_optimizer_steps_for_timesteps(timesteps, rollout_length, epochs, requested) == counted


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((-1, 128, 4, 4), "timesteps must be a whole number >= 0, got -1"),
        ((100, 0, 4, 4), "rollout_length must be a whole number >= 1, got 0"),
        ((100, 128, -2, 4), "learning_epochs must be a whole number >= 1, got -2"),
        ((100, 128, 4, 0), "requested_mini_batches must be a whole number >= 1, got 0"),
        ((100, 128, 4, 2.5), "requested_mini_batches must be a whole number >= 1, got 2.5"),
        ((100, True, 4, 4), "rollout_length must be a whole number >= 1, got True"),
    ],
)
def test_a_wrong_count_is_refused_by_name_and_value(arguments, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        num_optimizer_steps_for_timesteps(*arguments)
