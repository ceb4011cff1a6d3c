"""Distributions by enumeration and by SciPy, in float64."""

import itertools

import numpy as np
from scipy import integrate, stats


def probabilities(logits, mask=None):
    """Normalise one row of logits over the allowed categories."""
    logits = np.asarray(logits, np.float64)
    allowed = np.ones(logits.shape, bool) if mask is None else np.asarray(mask).astype(bool)
    weights = np.where(allowed, np.exp(logits - logits[allowed].max()), 0.0)
    return weights / weights.sum()


def entropy(probs):
    """Sum -p log p over what can happen."""
    probs = np.asarray(probs, np.float64).ravel()
    probs = probs[probs > 0]
    return float(-np.sum(probs * np.log(probs)))


def divergence(probs, others):
    """Sum p log(p / q) over what can happen."""
    probs, others = np.asarray(probs, np.float64).ravel(), np.asarray(others, np.float64).ravel()
    kept = probs > 0
    return float(np.sum(probs[kept] * np.log(probs[kept] / others[kept])))


def joint_table(logits, nvec):
    """Enumerate a factored categorical: one probability per combination of indices."""
    ends = np.cumsum(nvec)
    parts = [probabilities(logits[end - n : end]) for end, n in zip(ends, nvec, strict=True)]
    table = np.zeros(nvec)
    for indices in itertools.product(*(range(n) for n in nvec)):
        table[indices] = np.prod([part[i] for part, i in zip(parts, indices, strict=True)])
    return table


def gaussian_log_prob(action, mean, std):
    """Sum the one-dimensional log-densities."""
    return stats.norm.logpdf(np.asarray(action, np.float64), mean, std).sum(axis=-1)


def squashed_cdf(action, mean, std, low, high):
    """Probability that a one-dimensional squashed Gaussian is at most `action`."""
    return stats.norm.cdf(np.arctanh(2 * (action - low) / (high - low) - 1), mean, std)


def gaussian_divergence_by_quadrature(mean, std, other_mean, other_std):
    """Integrate p log(p / q) of two one-dimensional Gaussians."""
    p, q = stats.norm(mean, std), stats.norm(other_mean, other_std)
    spread = 12 * std
    value, _ = integrate.quad(
        lambda x: p.pdf(x) * (p.logpdf(x) - q.logpdf(x)), mean - spread, mean + spread, limit=200
    )
    return value
