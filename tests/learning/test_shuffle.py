"""Random permutations without a sort: each one a bijection, no element prefers a place or a neighbour."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dressage.learning import shuffle
from dressage.learning.shuffle import permutation

# A fair shuffle fails one such test in 10,000; keys are fixed, so a result never changes between runs.
SIGNIFICANCE = 1e-4

many_permutations = jax.jit(
    lambda key, size, count: jax.vmap(lambda one: permutation(one, size))(jax.random.split(key, count)),
    static_argnums=(1, 2),
)


def flat_chi_squared(counts, cells_summing_to_a_constant):
    """P-value of counts under equal expectations, with the given number of linear constraints."""
    expected = counts.mean()
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return stats.chi2.sf(statistic, counts.size - cells_summing_to_a_constant)


@pytest.fixture(scope="module")
def drawn():
    """Many permutations of each of a few sizes, as NumPy arrays `[count, size]`."""
    counts = {4: 20_000, 10: 30_000, 16: 30_000, 97: 20_000, 512: 12_000}
    return {n: np.asarray(many_permutations(jax.random.key(n), n, count)) for n, count in counts.items()}


def test_the_cipher_is_a_bijection_of_the_domain_of_every_size_up_to_300():
    # Numbers outside the range walk on along their cycle, so a bijection of the domain is one of the range.
    # One program serves all domains; compiling 300 permutations would take minutes.
    feistel = jax.jit(shuffle._feistel)
    keys = np.random.default_rng(0).integers(0, 2**32, (300, shuffle.ROUNDS), dtype=np.uint32)
    for size in range(1, 301):
        left = int(np.ceil(np.sqrt(size)))
        right = -(-size // left)
        domain = np.arange(left * right)
        padded = np.zeros(330, np.uint32)
        padded[: domain.size] = domain
        image = np.asarray(feistel(padded, keys[size - 1], np.uint32(left), np.uint32(right)))
        np.testing.assert_array_equal(np.sort(image[: domain.size]), domain, err_msg=str(size))


@pytest.mark.parametrize("size", [1, 2, 3, 11, 64, 256, 20_480, 300_007])
def test_a_permutation_holds_every_index_once_as_int32(size):
    numbers = np.asarray(jax.jit(permutation, static_argnums=1)(jax.random.key(3), size))
    assert numbers.dtype == np.int32
    np.testing.assert_array_equal(np.sort(numbers), np.arange(size))


@pytest.mark.parametrize("size", [10, 16, 97, 512])
def test_every_element_is_equally_often_at_every_position(drawn, size):
    orders = drawn[size]
    cells = orders + size * np.arange(size)
    counts = np.bincount(cells.ravel(), minlength=size * size).reshape(size, size)
    # Rows and columns of the table sum to the number of permutations: (size - 1)^2 are free.
    assert flat_chi_squared(counts, 2 * size - 1) > SIGNIFICANCE
    # A table that is too even (each key a mere rotation of another) is no chance either.
    assert flat_chi_squared(counts, 2 * size - 1) < 1 - SIGNIFICANCE


@pytest.mark.parametrize("size", [10, 16, 97])
def test_every_ordered_pair_is_equally_often_adjacent(drawn, size):
    orders = drawn[size].astype(np.int64)
    pairs = (orders[:, :-1] * size + orders[:, 1:]).ravel()
    counts = np.bincount(pairs, minlength=size * size).reshape(size, size)
    off_diagonal = counts[~np.eye(size, dtype=bool)]
    # No fixed sums here beyond the total: the chi-squared law is approximate, so a wide margin is kept.
    assert flat_chi_squared(off_diagonal, 1) > SIGNIFICANCE


@pytest.mark.parametrize("size", [97, 512])
def test_neighbours_before_stay_neighbours_after_only_by_chance(drawn, size):
    # In a true shuffle the mean of |p[i+1] - p[i]| is (size + 1) / 3, and p is uncorrelated with its index.
    orders = drawn[size].astype(np.float64)
    distances = np.abs(np.diff(orders, axis=1)).mean(axis=1)
    error = distances.std() / np.sqrt(len(orders))
    assert abs(distances.mean() - (size + 1) / 3) < 4 * error
    positions = np.arange(size) - (size - 1) / 2
    correlations = (orders - (size - 1) / 2) @ positions / (positions @ positions)
    assert abs(correlations.mean()) < 4 * correlations.std() / np.sqrt(len(orders))
    # The deviation of the rank correlation of random permutations is 1 / sqrt(size - 1).
    assert correlations.std() * np.sqrt(size - 1) == pytest.approx(1.0, abs=0.03)


def test_all_permutations_of_four_elements_come_up_equally_often(drawn):
    _, counts = np.unique(drawn[4] @ 4 ** np.arange(4), return_counts=True)
    assert len(counts) == 24
    assert flat_chi_squared(counts, 1) > SIGNIFICANCE


def test_different_keys_give_different_orders(drawn):
    assert len(np.unique(drawn[97], axis=0)) == len(drawn[97])


def test_neighbouring_seeds_give_unrelated_orders():
    seeds = jax.vmap(jax.random.key)(jnp.arange(400))
    orders = np.asarray(jax.jit(jax.vmap(lambda key: permutation(key, 512)))(seeds))
    # Two unrelated permutations agree at one position on average, whatever their size.
    agreements = (orders[1:] == orders[:-1]).sum(axis=1)
    assert agreements.mean() == pytest.approx(1.0, abs=0.25)
    assert agreements.max() < 10
