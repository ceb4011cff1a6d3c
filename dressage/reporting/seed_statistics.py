"""Owns the statistics over seeds and episodes: interquartile mean and stratified bootstrap intervals.

Reference:
    Agarwal, Schwarzer, Castro, Courville, Bellemare: "Deep Reinforcement Learning at the Edge of the
    Statistical Precipice", NeurIPS 2021. Interquartile mean: section 4.3; stratified bootstrap: section
    4.1. Scores are raw returns here, not normalised ones, since one task is looked at.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000
"""Bootstrap resamples; the interval's ends move by less than 2 % of its width from 2,000 on."""


@dataclass(frozen=True)
class ReturnSummary:
    """What evaluation episodes say about a policy or about several seeds of it.

    Attributes:
        estimate: Interquartile mean over the seeds, or the mean over the episodes where there is one seed.
        low: Lower end of the 95 % bootstrap interval; NaN where there is too little to resample.
        high: Upper end.
        deviation: Standard deviation over the seeds, or over the episodes where there is one seed.
        seed_means: Mean return of each seed, `[K]`; NaN for a seed of which no episode finished.
        seed_deviations: Standard deviation over each seed's episodes, `[K]`.
        episodes: Finished episodes of all seeds.
        unfinished: Episodes that did not finish and are left out.
    """

    estimate: float
    low: float
    high: float
    deviation: float
    seed_means: np.ndarray  # [K]
    seed_deviations: np.ndarray  # [K]
    episodes: int
    unfinished: int

    @property
    def over_seeds(self) -> bool:
        """Whether the estimate is taken over seeds rather than over episodes."""
        return len(self.seed_means) > 1

    @property
    def meaning(self) -> str:
        """What the estimate and its interval are, in words."""
        if self.over_seeds:
            return f"interquartile mean of {len(self.seed_means)} seeds, 95 % stratified bootstrap interval"
        return f"mean of {self.episodes} episodes, 95 % bootstrap interval"


def summarize_returns(returns: np.ndarray) -> ReturnSummary:
    """Summarise the returns of evaluation episodes.

    Args:
        returns: `[K, E]`, NaN where an episode did not finish.
    """
    rows = [row[~np.isnan(row)] for row in np.atleast_2d(np.asarray(returns, dtype=np.float64))]
    means = np.array([row.mean() if row.size else math.nan for row in rows])
    deviations = np.array([row.std() if row.size else math.nan for row in rows])
    episodes = sum(row.size for row in rows)
    scores, statistic = (means, interquartile_mean) if len(rows) > 1 else (rows[0], _mean_of_columns)
    scores = scores[~np.isnan(scores)][:, np.newaxis]
    low, high = bootstrap_interval(scores, statistic)
    return ReturnSummary(
        estimate=statistic(scores) if scores.size else math.nan,
        low=low,
        high=high,
        deviation=float(scores.std()) if scores.size else math.nan,
        seed_means=means,
        seed_deviations=deviations,
        episodes=episodes,
        unfinished=int(np.asarray(returns).size) - episodes,
    )


def finished_only(values: np.ndarray, finished: np.ndarray) -> np.ndarray:
    """Return the values as float64, with NaN where the episode did not finish.

    Args:
        values: `[K, E]`.
        finished: `[K, E]` bool.
    """
    return np.where(np.asarray(finished, dtype=bool), np.asarray(values, dtype=np.float64), math.nan)


def interquartile_mean(scores: np.ndarray) -> float:
    """Return the mean of the middle half of all scores.

    A quarter of the scores, rounded down, is dropped at each end: with fewer than 4 scores it is the mean.

    Args:
        scores: `[runs, tasks]` or any shape; all entries count alike.

    Returns:
        The interquartile mean, in units of the return.

    Reference:
        Agarwal et al. 2021, section 4.3.
    """
    ordered = np.sort(np.asarray(scores, dtype=np.float64), axis=None)
    dropped = ordered.size // 4
    return float(ordered[dropped : ordered.size - dropped].mean())


def bootstrap_interval(
    scores: np.ndarray,
    statistic: Callable[[np.ndarray], float] = interquartile_mean,
    *,
    confidence: float = 0.95,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[float, float]:
    """Return the percentile interval of a statistic under resampling of runs within each task.

    Args:
        scores: `[runs, tasks]`; each task's runs are drawn with replacement, independently of other tasks'.
        statistic: Maps `[runs, tasks]` to a number.
        confidence: Probability mass of the interval, in (0, 1).
        resamples: Number of resamples.
        seed: Seed of the draws: the same scores give the same interval.

    Returns:
        Lower and upper end; both NaN for fewer than two runs, of which nothing can be said.

    Reference:
        Agarwal et al. 2021, section 4.1 (stratified bootstrap, percentile method).
    """
    runs, tasks = scores.shape
    if runs < 2:
        return math.nan, math.nan
    draws = np.random.default_rng(seed).integers(runs, size=(resamples, runs, tasks))
    values = [statistic(np.take_along_axis(scores, draw, axis=0)) for draw in draws]
    tail = (1.0 - confidence) / 2.0
    low, high = np.quantile(values, [tail, 1.0 - tail])
    return float(low), float(high)


def _mean_of_columns(scores: np.ndarray) -> float:
    return float(scores.mean())
