"""A critic on its own, fitted against the same steps written out with optax."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dressage.learning.critic_fit import CriticSamples, ValueFit, fit_critic, flat_samples
from dressage.learning.flat_parameters import OPTIMIZER
from dressage.networks import Critic

CRITIC = Critic((5,), kernel_init="lecun_normal")
STEPS, COPIES, WIDTH = 4, 3, 2


def fit_of(**changes):
    numbers = {"weight": 0.5, "max_grad_norm": 0.1} | changes
    return ValueFit(
        **{name: jnp.float32(n) for name, n in numbers.items()}, clip_eps=None, epochs=3, minibatches=1
    )


@pytest.fixture(scope="module")
def layers():
    return CRITIC.init(jax.random.key(0), jnp.zeros((1, WIDTH)))["params"]


@pytest.fixture(scope="module")
def records():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(STEPS, COPIES, WIDTH)).astype(np.float32)
    returns, values = rng.normal(size=(2, STEPS, COPIES)).astype(np.float32)
    valid = rng.random((STEPS, COPIES)) < 0.7
    return CriticSamples(features, returns, values, valid)


@pytest.fixture(scope="module")
def fitted():
    return jax.jit(
        lambda layers, samples, fit, rates: fit_critic(
            CRITIC, layers, OPTIMIZER.init(layers), samples, jax.random.key(1), fit, rates
        )
    )


def test_a_fit_is_adam_on_clipped_gradients_of_half_the_mean_square(layers, records, fitted):
    rates = jnp.array([0.01, 0.02, 0.005])
    ours = fitted(layers, flat_samples(records, None), fit_of(), rates)
    valid = records.valid.ravel()
    features, returns = records.features.reshape(-1, WIDTH)[valid], records.returns.ravel()[valid]

    def loss(params):
        return 0.5 * jnp.mean(0.5 * (CRITIC.apply({"params": params}, features) - returns) ** 2)

    chain = optax.chain(optax.clip_by_global_norm(0.1), optax.scale_by_adam(eps=1e-5))
    params, state = layers, chain.init(layers)
    for rate in rates:
        direction, state = chain.update(jax.grad(loss)(params), state)
        params = jax.tree.map(lambda leaf, change, rate=rate: leaf - rate * change, params, direction)
    for mine, other in zip(jax.tree.leaves(ours.layers), jax.tree.leaves(params), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-6)
    assert ours.applications == 3
    assert ours.skipped == 0


def test_what_stands_in_rows_that_are_no_samples_does_not_matter(layers, records, fitted):
    hole = ~records.valid
    spoiled = CriticSamples(
        np.where(hole[..., None], np.nan, records.features),
        np.where(hole, np.nan, records.returns),
        np.where(hole, np.nan, records.values),
        records.valid,
    )
    clean, other = (
        fitted(layers, flat_samples(one, None), fit_of(), jnp.full(3, 0.01)) for one in (records, spoiled)
    )
    for mine, theirs in zip(jax.tree.leaves(clean), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_loss_that_is_not_finite_changes_nothing_and_is_counted(layers, records, fitted):
    samples = flat_samples(records, None).replace(returns=jnp.full(STEPS * COPIES, jnp.inf))
    after = fitted(layers, samples, fit_of(), jnp.full(3, 0.01))
    for mine, before in zip(jax.tree.leaves(after.layers), jax.tree.leaves(layers), strict=True):
        np.testing.assert_array_equal(mine, before)
    assert after.skipped == 1


def test_only_rows_that_were_made_are_laid_out(records):
    rows = np.array([0, 5, 7])
    chosen = flat_samples(records, rows)
    blank = records.valid.ravel()[rows]
    np.testing.assert_array_equal(chosen.returns, np.where(blank, records.returns.ravel()[rows], 0.0))
