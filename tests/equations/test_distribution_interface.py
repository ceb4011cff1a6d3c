"""What all distributions have in common: pytrees, transformations, noise drawn in bulk."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.equations.distributions import (
    AugmentedAction,
    Categorical,
    DiagGaussian,
    FactoredCategorical,
    SquashedGaussian,
)

BATCH = 6
LOGITS = jnp.linspace(-1, 2, BATCH * 5).reshape(BATCH, 5)
MEAN, LOG_STD = jnp.linspace(-1, 1, BATCH * 2).reshape(BATCH, 2), jnp.array([-0.5, 0.3])
MAKERS = {
    "categorical": lambda logits, mean: Categorical(logits),
    "masked": lambda logits, mean: Categorical(logits, jnp.array([1, 0, 1, 1, 0])),
    "narrow": lambda logits, mean: Categorical(logits[..., :2]),
    "factored": lambda logits, mean: FactoredCategorical(logits, (2, 3)),
    "gaussian": lambda logits, mean: DiagGaussian(mean, LOG_STD),
    "squashed": lambda logits, mean: SquashedGaussian(mean, LOG_STD, -jnp.ones(2), 2 * jnp.ones(2)),
    "augmented": lambda logits, mean: AugmentedAction(logits, (2, 3), mean, LOG_STD),
}
KEY = jax.random.key(0)

every_kind = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def facts_of(distribution, other, noise):
    action = distribution.sample_from(noise)
    answers = distribution.log_prob(action), distribution.entropy(), distribution.kl(other)
    return action, distribution.mode(), answers


def assert_equal_trees(ours, theirs, **tolerance):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), ours, theirs)


@every_kind
def test_jit_and_vmap_change_nothing_and_a_distribution_passes_through_both(make):
    distribution, other = make(LOGITS, MEAN), make(0.9 * LOGITS, 0.9 * MEAN)
    noise = distribution.draw_noise(KEY, (BATCH,))
    compiled = jax.jit(facts_of)(distribution, other, noise)
    assert_equal_trees(compiled, facts_of(distribution, other, noise), rtol=1e-5, atol=1e-6)

    def facts_of_row(logits, mean, noise):
        return facts_of(make(logits, mean), make(0.9 * logits, 0.9 * mean), noise)

    rowwise = jax.jit(jax.vmap(facts_of_row))(LOGITS, MEAN, noise)
    assert_equal_trees(compiled, rowwise, rtol=1e-5, atol=1e-6)
    assert all(answer.shape == (BATCH,) for answer in compiled[2])


@every_kind
def test_gradients_of_every_answer_are_finite(make):
    def total(logits, mean):
        distribution = make(logits, mean)
        noise = jax.tree.map(jax.lax.stop_gradient, distribution.draw_noise(KEY, (BATCH,)))
        other = make(0.9 * logits, 0.9 * mean)
        return sum(answer.sum() for answer in facts_of(distribution, other, noise)[2])

    for gradient in jax.jit(jax.grad(total, (0, 1)))(LOGITS, MEAN):
        assert np.isfinite(gradient).all()


@every_kind
def test_the_score_has_zero_mean_under_the_distribution(make):
    """E[grad log p] = 0 holds only where density and sampler belong together."""

    def score(logits, mean, key):
        action = jax.lax.stop_gradient(make(logits, mean).sample(key))
        return make(logits, mean).log_prob(action)

    gradients = jax.jit(jax.vmap(jax.grad(score, (0, 1)), in_axes=(None, None, 0)))
    for scores in gradients(LOGITS[2], MEAN[2], jax.random.split(KEY, 20_000)):
        standard_error = np.asarray(scores).std(axis=0) / np.sqrt(20_000)
        assert (np.abs(np.mean(scores, axis=0)) <= 5 * standard_error + 1e-6).all()


@every_kind
def test_a_sample_is_its_noise_put_to_use(make):
    distribution = make(LOGITS, MEAN)
    noise = distribution.draw_noise(KEY, distribution.batch_shape)
    assert_equal_trees(distribution.sample(KEY), distribution.sample_from(noise))


@every_kind
def test_noise_of_a_whole_rollout_needs_only_the_shapes_of_a_distribution(make):
    shapes = jax.eval_shape(make, LOGITS, MEAN)
    noise = shapes.draw_noise(KEY, (3, BATCH))
    assert_equal_trees(noise, make(LOGITS, MEAN).draw_noise(KEY, (3, BATCH)))
    steps = jax.vmap(make(LOGITS, MEAN).sample_from)(noise)
    assert {leaf.shape[:2] for leaf in jax.tree.leaves(steps)} == {(3, BATCH)}


@every_kind
def test_rebuilding_a_distribution_from_its_leaves_computes_nothing(make):
    distribution = make(LOGITS, MEAN)
    leaves, structure = jax.tree.flatten(distribution)
    rebuilt = jax.tree.unflatten(structure, leaves)
    assert all(a is b for a, b in zip(jax.tree.leaves(rebuilt), leaves, strict=True))
    assert type(jax.tree.unflatten(structure, range(len(leaves)))) is type(distribution)


@every_kind
def test_a_distribution_is_frozen(make):
    with pytest.raises(AttributeError):
        make(LOGITS, MEAN).mean = MEAN


@every_kind
def test_numpy_arrays_give_what_jax_arrays_give(make):
    distribution = make(LOGITS, MEAN)
    action = jax.tree.map(np.asarray, distribution.mode())
    from_numpy = make(np.asarray(LOGITS, np.float64), np.asarray(MEAN, np.float64))
    np.testing.assert_allclose(
        from_numpy.log_prob(action), distribution.log_prob(distribution.mode()), rtol=1e-6
    )
    assert from_numpy.log_prob(action).dtype == jnp.float32


def test_leaves_have_names_for_checkpoints_and_error_texts():
    paths = jax.tree_util.tree_leaves_with_path(MAKERS["augmented"](LOGITS, MEAN))
    names = [jax.tree_util.keystr(path) for path, _ in paths]
    assert names == [
        ".discrete.components.logits",
        ".discrete.components.log_probs",
        ".continuous.mean",
        ".continuous.log_std",
    ]


def test_half_precision_logits_are_normalised_in_single():
    assert Categorical(LOGITS.astype(jnp.bfloat16)).log_probs.dtype == jnp.float32
