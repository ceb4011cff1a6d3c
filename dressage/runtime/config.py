"""The options of a run: how many workers, how they are reached, and what happens when something fails."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dressage.config import Option, check_names
from dressage.errors import ConfigError

TRANSPORTS = ("inline", "processes", "ray")
NON_FINITE = ("raise", "quarantine")

OPTIONS = (
    Option("workers", 1, "integer", 1, unit="workers", help="Workers, each with its own environment copies."),
    Option(
        "transport",
        None,
        "choice",
        choices=TRANSPORTS,
        optional=True,
        help="How workers are reached: in this process, in processes of this machine, or by Ray. "
        "By default Ray where `address` names a cluster, else processes from two workers on.",
    ),
    Option("max_lag", 1, "integer", 1, unit="updates", help="Asynchronous runs: how old weights may be."),
    Option("restart_budget", 3, "integer", 0, unit="restarts", help="Lost workers that a run survives."),
    Option("timeout_s", 300.0, "number", 0, open_minimum=True, unit="seconds", help="Longest fragment."),
    Option(
        "start_timeout_s",
        180.0,
        "number",
        0,
        open_minimum=True,
        unit="seconds",
        help="Longest start of a worker.",
    ),
    Option(
        "non_finite",
        "raise",
        "choice",
        choices=NON_FINITE,
        help="A number that is not finite ends the run, or its fragment is dropped and the environment "
        "made anew.",
    ),
    Option("seed", 0, "integer", 0, 2**63 - 1, help="What everything that is drawn depends on."),
    Option(
        "checkpoint_every", 0, "integer", 0, unit="updates", help="0 writes a checkpoint at the end alone."
    ),
    Option("keep_checkpoints", 3, "integer", 1, unit="checkpoints", help="How many of the latest are kept."),
)
"""All options but `address`, which is any text."""

_DECLARED = {option.name: option for option in OPTIONS}


@dataclass(frozen=True)
class RuntimeConfig:
    """How a run is laid out; see `OPTIONS` for units and ranges.

    Attributes:
        workers: Number of workers.
        transport: `inline`, `processes` or `ray`; None decides by `address` and `workers`.
        address: A Ray cluster: `local` starts one on this machine, anything else is a head's address.
        max_lag: How many updates old the weights of an asynchronous fragment may be.
        restart_budget: How many lost workers (and dropped fragments that were not finite) a run survives.
        timeout_s: Seconds that a worker may take for one fragment.
        start_timeout_s: Seconds that a worker may take to start.
        non_finite: `raise` or `quarantine`.
        seed: Of everything that is drawn.
        checkpoint_every: Updates between checkpoints; 0 writes one at the end alone.
        keep_checkpoints: How many of the latest are kept.

    Raises:
        ConfigError: If a value has the wrong type or range, or `address` and `transport` contradict.
    """

    workers: int = 1
    transport: str | None = None
    address: str | None = None
    max_lag: int = 1
    restart_budget: int = 3
    timeout_s: float = 300.0
    start_timeout_s: float = 180.0
    non_finite: str = "raise"
    seed: int = 0
    checkpoint_every: int = 0
    keep_checkpoints: int = 3

    def __post_init__(self) -> None:
        for name, option in _DECLARED.items():
            object.__setattr__(self, name, option.check(getattr(self, name), "runtime"))
        address: Any = self.address  # whatever a configuration file held
        if address is not None and (not isinstance(address, str) or not address):
            raise ConfigError(
                "runtime option 'address' must be 'local', a Ray head's address or None, "
                f"got {self.address!r}."
            )
        if self.address is not None and self.transport not in (None, "ray"):
            raise ConfigError(
                "runtime option 'address' names a Ray cluster, so transport "
                f"{self.transport!r} contradicts it: leave one of them out."
            )

    @property
    def chosen_transport(self) -> str:
        """The transport, decided where it was left open."""
        if self.transport is not None:
            return self.transport
        if self.address is not None:
            return "ray"
        return "processes" if self.workers > 1 else "inline"


def runtime_config(overrides: Mapping[str, Any] | None = None) -> RuntimeConfig:
    """Lay options that a user wrote over the defaults.

    Raises:
        ConfigError: If an option is unknown, or `RuntimeConfig` refuses a value.
    """
    given = dict(overrides or {})
    check_names(given, [field.name for field in dataclasses.fields(RuntimeConfig)], "runtime")
    return RuntimeConfig(**given)
