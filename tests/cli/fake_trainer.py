"""A trainer without a network: it honours the protocol, costs nothing and can be made to misbehave."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

STEPS_PER_UPDATE = 128


@dataclass
class FakeTrainer:
    """Each update turns a weight by a fixed map, so the last weight tells whether every update was made once.

    `before_update` runs before each update, with the number of updates done: tests stop, kill or fail there.
    """

    num_updates: int = 40
    seeds: tuple[int, ...] = (0,)
    evaluation_episodes: int = 4
    exact_resume: bool = True
    steps_per_update: int = STEPS_PER_UPDATE
    before_update: Callable[[int], None] = lambda done: None
    chunks: list[int] = field(default_factory=list)
    evaluated_at: list[int] = field(default_factory=list)

    def init(self) -> dict[str, Any]:
        return {"weight": np.array(self.seeds, np.float64) + 0.5, "updates": np.zeros((), np.int64)}

    def advance(self, state: dict[str, Any], updates: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        self.chunks.append(updates)
        weight, done = state["weight"], int(state["updates"])
        for _ in range(updates):
            self.before_update(done)
            weight, done = 3.9 * (weight % 1.0) * (1.0 - weight % 1.0), done + 1
        metrics = {
            "train/loss": weight.copy(),
            "train/episode_return": np.full(len(self.seeds), -float(done)),
        }
        return {"weight": weight, "updates": np.array(done)}, metrics

    def evaluate(self, state: dict[str, Any]) -> dict[str, np.ndarray]:
        if self.evaluation_episodes == 0:
            return {}
        done = self.updates_done(state)
        self.evaluated_at.append(done)
        shape = (len(self.seeds), self.evaluation_episodes)
        finished = np.ones(shape, bool)
        finished[:, -1] = False
        returns = np.broadcast_to(10.0 * done + np.arange(self.evaluation_episodes), shape)
        return {"eval/returns": returns, "eval/lengths": np.full(shape, 7), "eval/finished": finished}

    def updates_done(self, state: dict[str, Any]) -> int:
        return int(state["updates"])

    def steps_done(self, state: dict[str, Any]) -> int:
        return self.updates_done(state) * self.steps_per_update


@dataclass
class KeptStates:
    """Stands in for `Checkpoints`: keeps what is saved in memory."""

    saved: list[tuple[int, Any, dict[str, Any]]] = field(default_factory=list)

    def save(self, step: int, state: Any, note: dict[str, Any]) -> None:
        self.saved.append((step, {name: np.array(value) for name, value in state.items()}, note))
