"""Owns what the command line needs of a learner: a run in chunks, between which it can be watched."""

from typing import Any, Protocol

import numpy as np

from dressage.ppo import Policy


class Trainable(Protocol):
    """A run over one or several seeds; `dressage.ppo.make_trainer` makes one. `K` is the number of seeds."""

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that are trained side by side."""

    @property
    def steps_per_update(self) -> int:
        """Environment steps of one update of one seed."""

    @property
    def num_updates(self) -> int:
        """Updates of the whole run."""

    @property
    def exact_resume(self) -> bool:
        """Whether the state holds all that the rest of the run depends on."""

    def init(self) -> Any:  # noqa: ANN401 (the run's own state)
        """Return the state before the first update; it is what a checkpoint holds."""

    def advance(self, state: Any, updates: int) -> tuple[Any, dict[str, np.ndarray]]:  # noqa: ANN401
        """Make updates; the state given is used up. Metrics are `[K]` by name."""

    def evaluate(self, state: Any) -> dict[str, np.ndarray]:  # noqa: ANN401
        """Play evaluation episodes, `[K, E]` by name; changes nothing."""

    def updates_done(self, state: Any) -> int:  # noqa: ANN401
        """Return the number of updates behind a state."""

    def steps_done(self, state: Any) -> int:  # noqa: ANN401
        """Return the environment steps behind a state, of each seed."""

    def policy(self, state: Any, seed_index: int = 0) -> Policy:  # noqa: ANN401
        """Return the policy of one seed."""
