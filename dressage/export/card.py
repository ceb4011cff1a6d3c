"""What a policy's file tells of itself: what goes in and comes out, how it was trained, what it achieved."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Signal:
    """One number of an observation or an action.

    Attributes:
        name: What it is.
        unit: Its unit; empty where it has none.
        low: Least value; None where it is unbounded or unknown.
        high: Greatest value.
    """

    name: str
    unit: str = ""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Score:
    """What a policy achieved in evaluation.

    Attributes:
        estimate: Mean over the episodes.
        low: Lower end of the mean's 95 % interval; None where it is not known.
        high: Upper end.
        deviation: Standard deviation over the episodes.
        episodes: Number of episodes that finished.
        limit: Largest value that was allowed, for a cost; None for a return.
        verdict: Of a limit at 95 % confidence: kept, not kept or undecided; None for a return.
        sampled: Whether actions were sampled; False for the most likely ones, None where it is not known.
        mean_of: Number of agents whose mean it is; None for that of the agent itself.
        after_steps: Environment steps of training behind the policy that was measured, where that is an
            earlier one.
    """

    estimate: float
    low: float | None = None
    high: float | None = None
    deviation: float | None = None
    episodes: int | None = None
    limit: float | None = None
    verdict: str | None = None
    sampled: bool | None = None
    mean_of: int | None = None
    after_steps: int | None = None


@dataclass(frozen=True)
class Card:
    """Where a policy comes from and what it is worth; every field may be unknown.

    Attributes:
        task: The task that it was trained on.
        agent: The agent that it acts for.
        algorithm: The learner.
        seed: The seed of its training.
        training_steps: Environment steps of its training.
        control_period_s: Seconds from one action to the next.
        observation: The numbers of the flattened observation, in order.
        action: The numbers of the action, in order.
        returns: Undiscounted return of an episode.
        cost: Cost of an episode.
        note: Anything else.
    """

    task: str | None = None
    agent: str | None = None
    algorithm: str | None = None
    seed: int | None = None
    training_steps: int | None = None
    control_period_s: float | None = None
    observation: tuple[Signal, ...] = ()
    action: tuple[Signal, ...] = ()
    returns: Score | None = None
    cost: Score | None = None
    note: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return what JSON holds; what is unknown is left out."""
        return {name: value for name, value in asdict(self).items() if value not in (None, ())}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "Card":
        """Rebuild a card that went through JSON."""
        scores = {name: Score(**fields[name]) for name in ("returns", "cost") if name in fields}
        signals = {
            name: tuple(Signal(**signal) for signal in fields[name])
            for name in ("observation", "action")
            if name in fields
        }
        return cls(**{**fields, **scores, **signals})
