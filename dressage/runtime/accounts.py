"""Counts what became of every step that workers took, and how long each stage of an update lasted."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from dressage.runtime.records import EpisodeSums

STAGES = ("collect", "transfer", "learn", "publish", "checkpoint")

EPISODES = "rollout/episodes"
"""Name of the number of episodes that an update's fragments finished."""


@dataclass
class Counters:
    """What became of the steps; at every update `collected_steps == used_steps + dropped_steps`.

    Fragments that wait to be learned from, or are being collected, are counted when that is decided.

    Attributes:
        collected_steps: Environment steps of all fragments that were delivered or lost.
        used_steps: Those that an update learned from.
        dropped_steps: Those that none learned from.
        lost_workers: Workers that died.
        restarts: Workers and environments that were made anew.
        quarantined_fragments: Fragments dropped for a number that was not finite.
        stale_fragments: Fragments dropped since their weights were too old.
    """

    collected_steps: int = 0
    used_steps: int = 0
    dropped_steps: int = 0
    lost_workers: int = 0
    restarts: int = 0
    quarantined_fragments: int = 0
    stale_fragments: int = 0

    def use(self, steps: int) -> None:
        """Count the steps of a fragment that is learned from."""
        self.collected_steps += steps
        self.used_steps += steps

    def drop(self, steps: int) -> None:
        """Count the steps of a fragment that is not."""
        self.collected_steps += steps
        self.dropped_steps += steps

    def metrics(self) -> dict[str, float]:
        """Return all counts by name."""
        return {f"runtime/{name}": float(value) for name, value in vars(self).items()}


@dataclass
class Stopwatch:
    """How long the stages of the present update have taken, seconds.

    `collect` is the time of the slowest worker, `transfer` what the learner waited beyond that.
    """

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STAGES, 0.0))
    began: float = field(default_factory=time.perf_counter)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a block as one stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] += time.perf_counter() - start

    def waited(self, seconds: float, slowest: float) -> None:
        """Note how long the learner waited for fragments, and how long the slowest worker collected."""
        collected = min(seconds, slowest)
        self.seconds["collect"] += collected
        self.seconds["transfer"] += seconds - collected

    def metrics(self) -> dict[str, float]:
        """Return the seconds of every stage and of the whole update, and begin the next."""
        now = time.perf_counter()
        found = {f"time/{name}_s": seconds for name, seconds in self.seconds.items()}
        found["time/update_s"] = now - self.began
        self.seconds, self.began = dict.fromkeys(STAGES, 0.0), now
        return found


def episode_metrics(episodes: EpisodeSums) -> dict[str, float]:
    """Return mean return and length of the episodes that an update's fragments finished; none without any."""
    metrics = {EPISODES: float(episodes.count)}
    if episodes.count:
        metrics["rollout/episode_return"] = episodes.returns / episodes.count
        metrics["rollout/episode_length"] = episodes.lengths / episodes.count
    return metrics


def lag_metrics(lags: Sequence[int]) -> dict[str, float]:
    """Return how old the weights of an update's fragments were, in updates."""
    return {"runtime/lag_mean": sum(lags) / len(lags), "runtime/lag_max": float(max(lags))}
