"""Categorical and factored categorical distributions: tables worked by hand, enumeration, masks, extremes."""

import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

from dressage.equations.distributions import MASKED, Categorical, FactoredCategorical
from tests.oracles.plain_distributions import divergence, entropy, joint_table, probabilities
from tests.strategies import masks, numbers

NVEC = (2, 3, 5)
FACTORED_LOGITS = np.array([0.2, -0.4, 1, 0, -1, 0.5, 0.1, -0.3, 2, -1.2])
MASK_LOGITS, MASK = np.array([0.3, 1.2, -0.5, 0.8]), np.array([1, 0, 1, 1])
# Widths on both sides of the one up to which categories are unrolled.
WIDTHS = (1, 3, 4)


@jax.jit
def facts_of(logits, mask=None):
    distribution = Categorical(logits, mask)
    actions = jnp.arange(logits.shape[-1])[:, None]
    return distribution.probs, jnp.moveaxis(distribution.log_prob(actions), 0, -1), distribution.entropy()


@jax.jit
def divergence_of(logits, others):
    return Categorical(logits).kl(Categorical(others))


def test_the_factored_table_worked_by_hand():
    distribution = FactoredCategorical(FACTORED_LOGITS, NVEC)
    expected = (
        (0.64565631, 0.35434369),
        (0.66524096, 0.24472847, 0.09003057),
        (0.14740519, 0.09880865, 0.06623342, 0.66062423, 0.02692850),
    )
    for probs, row in zip(distribution.component_probs(), expected, strict=True):
        np.testing.assert_allclose(probs, row, rtol=1e-4)
    assert distribution.log_prob(np.array([1, 0, 3])) == pytest.approx(-1.8596640, rel=1e-5)
    assert distribution.entropy() == pytest.approx(2.5444121, rel=1e-5)
    np.testing.assert_array_equal(distribution.mode(), [0, 0, 3])


def test_component_log_probs_and_entropies_are_those_of_single_categoricals():
    parts = [Categorical(part) for part in np.split(FACTORED_LOGITS, [2, 5])]
    log_probs = [part.log_prob(index) for part, index in zip(parts, (1, 0, 3), strict=True)]
    np.testing.assert_allclose(log_probs, [-1.0374880, -0.4076060, -0.4145701], rtol=1e-5)
    np.testing.assert_allclose([p.entropy() for p in parts], [0.6500942, 0.8323956, 1.0619224], rtol=1e-5)


def test_the_joint_of_thirty_entries_has_the_same_probabilities_and_entropy():
    distribution, table = FactoredCategorical(FACTORED_LOGITS, NVEC), joint_table(FACTORED_LOGITS, NVEC)
    indices = np.argwhere(table > 0)
    np.testing.assert_allclose(distribution.log_prob(indices), np.log(table[tuple(indices.T)]), rtol=1e-5)
    assert entropy(table) == pytest.approx(2.5444121, rel=1e-6)
    assert distribution.entropy() == pytest.approx(entropy(table), rel=1e-5)


def test_extreme_logits_give_exact_limits():
    distribution = FactoredCategorical(np.array([1000.0, -1000, 0, 0, 0]), (2, 3))
    np.testing.assert_allclose(distribution.log_prob(np.array([[0, 2], [1, 2]])), [-1.0986123, -2001.0986])
    assert distribution.entropy() == pytest.approx(1.0986123)
    gradient = jax.jit(jax.grad(lambda logits: FactoredCategorical(logits, (2, 3)).entropy()))
    assert np.isfinite(gradient(jnp.array([1000.0, -1000, 0, 0, 0]))).all()


@pytest.mark.parametrize("batch", [(), (6,), (4, 2)])
def test_shapes_are_those_of_the_batch(batch):
    @jax.jit
    def everything(logits):
        distribution = FactoredCategorical(logits, NVEC)
        actions = distribution.sample(jax.random.key(0))
        answers = distribution.log_prob(actions), distribution.entropy(), distribution.kl(distribution)
        return distribution, actions, answers, distribution.component_probs()

    distribution, actions, answers, component_probs = everything(
        np.broadcast_to(FACTORED_LOGITS, (*batch, 10))
    )
    assert [p.shape for p in component_probs] == [(*batch, n) for n in NVEC]
    assert actions.shape == (*batch, 3)
    assert actions.dtype == jnp.int32
    assert {answer.shape for answer in answers} == {distribution.batch_shape} == {batch}
    for probs in component_probs:
        np.testing.assert_allclose(probs.sum(-1), np.ones(batch), rtol=1e-6)


def test_one_category_is_certain():
    distribution = Categorical(np.array([[3.0], [-4.0]]))
    np.testing.assert_array_equal(distribution.log_prob(np.zeros(2, int)), [0, 0])
    np.testing.assert_array_equal(distribution.entropy(), [0, 0])
    np.testing.assert_array_equal(distribution.sample(jax.random.key(0)), [0, 0])


@pytest.mark.parametrize("width", WIDTHS)
@given(numbers((5, 7), -30, 30))
def test_probabilities_log_probabilities_and_entropy_match_the_oracle(width, logits):
    probs, log_probs, entropies = facts_of(logits[:, :width])
    expected = np.array([probabilities(row) for row in logits[:, :width]])
    np.testing.assert_allclose(probs, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(np.exp(log_probs), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(entropies, [entropy(row) for row in expected], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("width", [3, 7])
@given(numbers((5, 7), -8, 8), numbers((5, 7), -8, 8))
def test_the_divergence_matches_the_oracle_and_is_not_negative(width, logits, others):
    measured = np.asarray(divergence_of(logits[:, :width], others[:, :width]))
    rows = zip(logits[:, :width], others[:, :width], strict=True)
    expected = [divergence(probabilities(p), probabilities(q)) for p, q in rows]
    np.testing.assert_allclose(measured, expected, rtol=1e-4, atol=1e-5)
    assert (measured > -1e-5).all()


def test_the_mask_table_worked_by_hand():
    distribution = Categorical(MASK_LOGITS, MASK)
    np.testing.assert_allclose(distribution.probs, [0.32278366, 0, 0.14503605, 0.53218029], rtol=1e-5)
    allowed = distribution.log_prob(np.array([0, 2, 3]))
    np.testing.assert_allclose(allowed, [-1.1307730, -1.9307730, -0.6307730], rtol=1e-5)
    assert distribution.log_prob(1) == np.float32(MASKED)
    assert distribution.entropy() == pytest.approx(0.9807117, rel=1e-5)
    assert distribution.mode() == 3


@pytest.mark.parametrize("width", WIDTHS)
def test_masks_match_the_oracle(width):
    @given(numbers((5, width), -30, 30), masks((5, width)))
    def check(logits, mask):
        probs, _, entropies = facts_of(logits, mask)
        expected = np.array([probabilities(*pair) for pair in zip(logits, mask, strict=True)])
        np.testing.assert_allclose(probs, expected, rtol=1e-4, atol=1e-6)
        assert (np.asarray(probs)[~mask] == 0).all()
        np.testing.assert_allclose(entropies, [entropy(row) for row in expected], rtol=1e-4, atol=1e-5)

    check()


@pytest.mark.parametrize("width", WIDTHS)
def test_masked_categories_are_never_drawn_and_their_gradient_is_zero(width):
    mask = np.arange(width) != width // 2 if width > 1 else np.array([True])
    logits = jnp.linspace(-1, 4, width)
    draw = jax.jit(lambda keys: jax.vmap(Categorical(logits, mask).sample)(keys))
    draws = draw(jax.random.split(jax.random.key(1), 2000))
    assert set(np.unique(draws)) == set(np.flatnonzero(mask))

    def both(logits):
        distribution = Categorical(logits, mask)
        return distribution.entropy() + distribution.log_prob(0) + distribution.log_prob(width // 2)

    gradient = jax.jit(jax.grad(both))(logits)
    assert np.isfinite(gradient).all()
    np.testing.assert_array_equal(np.asarray(gradient)[~mask], 0)


@pytest.mark.parametrize("width", [2, 5])
def test_a_row_that_allows_nothing_is_finite_and_harms_no_other_row(width):
    logits = np.linspace(-1, 1, 2 * width).reshape(2, width)
    mask = np.array([[True] * width, [False] * width])
    distribution = Categorical(logits, mask)
    np.testing.assert_array_equal(distribution.probs[1], np.zeros(width))
    np.testing.assert_array_equal(distribution.log_prob(np.array([0, 1]))[1], np.float32(MASKED))
    np.testing.assert_allclose(distribution.entropy(), [entropy(probabilities(logits[0])), 0], rtol=1e-5)
    np.testing.assert_array_equal(distribution.sample(jax.random.key(0))[1], 0)

    def total(logits):
        distribution = Categorical(logits, mask)
        return jnp.sum(distribution.entropy() + distribution.log_prob(np.zeros(2, int)))

    gradient = jax.jit(jax.grad(total))(jnp.asarray(logits))
    alone = jax.jit(jax.grad(lambda row: Categorical(row).entropy() + Categorical(row).log_prob(0)))(
        logits[0]
    )
    np.testing.assert_allclose(gradient, [alone, np.zeros(width)], rtol=1e-5, atol=1e-6)


def test_useless_logits_behind_a_mask_do_no_harm():
    def total(logits):
        distribution = Categorical(logits, np.array([True, False, True, False]))
        return distribution.entropy() + distribution.log_prob(2)

    value, gradient = jax.value_and_grad(total)(jnp.array([0.5, jnp.nan, 0.5, jnp.inf]))
    assert value == pytest.approx(0, abs=1e-6)
    np.testing.assert_allclose(gradient, [-0.5, 0, 0.5, 0])


def test_the_divergence_ignores_what_both_masks_forbid():
    p, q = np.array([0.3, 5.0, -0.5, 0.8]), np.array([0.1, -5.0, 0.5, 0.0])
    measured = Categorical(p, MASK).kl(Categorical(q, MASK))
    assert measured == pytest.approx(divergence(probabilities(p, MASK), probabilities(q, MASK)), rel=1e-5)
    assert np.isfinite(Categorical(p).kl(Categorical(q, MASK)))


def test_a_factored_mask_works_per_component():
    mask = np.array([0, 1, 1, 1, 0, 1, 0, 0, 0, 1])
    distribution = FactoredCategorical(FACTORED_LOGITS, NVEC, mask)
    cuts = zip(np.split(FACTORED_LOGITS, [2, 5]), np.split(mask, [2, 5]), strict=True)
    expected = [probabilities(logits, allowed) for logits, allowed in cuts]
    for probs, row in zip(distribution.component_probs(), expected, strict=True):
        np.testing.assert_allclose(probs, row, rtol=1e-5)
    assert distribution.entropy() == pytest.approx(sum(entropy(row) for row in expected), rel=1e-5)


@pytest.mark.parametrize("width", [2, 5])
@pytest.mark.parametrize("index", [-1, 1000])
def test_an_index_outside_the_categories_has_no_log_probability(width, index):
    assert np.isnan(Categorical(np.zeros(width)).log_prob(index))


@pytest.mark.parametrize("width", WIDTHS)
def test_sampled_frequencies_follow_the_probabilities(width):
    logits = np.linspace(-1, 1, width)
    draw = jax.jit(lambda key: Categorical(jnp.broadcast_to(logits, (40_000, width))).sample(key))
    draws = draw(jax.random.key(3))
    frequencies = np.bincount(draws, minlength=width) / 40_000
    # Four standard errors of the likeliest deviation: 4 * sqrt(0.25 / 40,000).
    np.testing.assert_allclose(frequencies, probabilities(logits), atol=0.01)


def test_equal_and_unequal_components_agree_where_they_overlap():
    logits = np.array([0.2, -0.4, 1.0, 0.7])
    equal, unequal = (
        FactoredCategorical(logits, (2, 2)),
        FactoredCategorical(np.append(logits, 0.0), (2, 2, 1)),
    )
    assert equal.log_prob(np.array([1, 0])) == unequal.log_prob(np.array([1, 0, 0]))
    assert equal.entropy() == unequal.entropy()


@pytest.mark.parametrize(
    ("nvec", "text"), [((), "nvec () needs 0 logits"), ((2, 2), "nvec (2, 2) needs 4 logits")]
)
def test_a_head_of_the_wrong_width_is_refused(nvec, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        FactoredCategorical(np.zeros(3), nvec)


@pytest.mark.slow
def test_distrax_agrees():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        distrax = pytest.importorskip("distrax")
        logits, others = jax.random.normal(jax.random.key(0), (2, 50, 6))
        peer, peer_other = distrax.Categorical(logits), distrax.Categorical(others)
        actions = np.arange(50) % 6
        theirs = peer.log_prob(actions), peer.entropy(), peer.kl_divergence(peer_other)
    ours = Categorical(logits)
    np.testing.assert_allclose(ours.log_prob(actions), theirs[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours.entropy(), theirs[1], rtol=1e-5)
    np.testing.assert_allclose(ours.kl(Categorical(others)), theirs[2], rtol=1e-4, atol=1e-6)
