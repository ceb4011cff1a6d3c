"""What the numbers of an observation and an action are, for whoever runs a policy outside of dressage."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Signal:
    """One number.

    Attributes:
        name: What it is.
        unit: Its unit; empty where it has none.
    """

    name: str
    unit: str = ""


@dataclass(frozen=True)
class Signals:
    """The numbers that go in and out of a policy of an environment.

    Attributes:
        observation: Those of the flattened observation, in order.
        action: Those of the action, in order; one for a discrete action.
        control_period_s: Seconds of real time that a step stands for; None where it stands for none.
    """

    observation: tuple[Signal, ...]
    action: tuple[Signal, ...]
    control_period_s: float | None = None
