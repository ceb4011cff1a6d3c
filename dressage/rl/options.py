"""The options that the multi-agent learners share: defaults, ranges, units, and how they are checked."""

from collections.abc import Mapping
from typing import Any

from dressage.config import Option, check_names, merge_configs
from dressage.errors import ConfigError
from dressage.networks import ACTIVATIONS

Options = tuple[Option, ...]

ROLLOUT_OPTIONS: Options = (
    Option("num_envs", 8, "integer", 1, unit="environments", help="Copies that step in parallel."),
    Option("rollout_length", 128, "integer", 1, unit="steps", help="Steps of every copy before an update."),
    Option(
        "num_workers",
        0,
        "integer",
        0,
        unit="processes",
        help="Worker processes that step copies of a host environment; 0 steps them in this process.",
    ),
    Option(
        "worker_timeout",
        60.0,
        "number",
        0.0,
        open_minimum=True,
        unit="seconds",
        help="How long a worker process may take over one step before it counts as hung.",
    ),
    Option("gamma", 0.99, "number", 0.0, 1.0, help="Discount a step."),
    Option("gae_lambda", 0.95, "number", 0.0, 1.0, help="Trace decay of generalised advantage estimation."),
    Option(
        "history_limit",
        10_000,
        "integer",
        0,
        unit="episodes",
        help="Most finished episodes that a result's history keeps; the oldest go first.",
    ),
)

PROXIMAL_OPTIONS: Options = (
    Option("learning_epochs", 4, "integer", 1, unit="passes", help="Passes over each rollout."),
    Option("mini_batches", 4, "integer", 1, unit="parts", help="Parts into which each pass cuts a rollout."),
    Option("learning_rate", 2.5e-4, "number", 0.0, open_minimum=True, help="Adam's step size."),
    Option(
        "anneal_learning_rate",
        False,
        "boolean",
        help="Whether the rate falls linearly to 0 over the optimiser steps of the whole training.",
    ),
    Option("clip_eps", 0.2, "number", 0.0, open_minimum=True, help="Half width of the trusted ratio range."),
    Option(
        "clip_value_loss", True, "boolean", help="Whether the value loss is clipped around the old value."
    ),
    Option("value_coef", 0.5, "number", 0.0, help="Weight of the value loss."),
    Option("entropy_coef", 0.01, "number", 0.0, help="Weight of the entropy bonus."),
    Option(
        "max_grad_norm", 0.5, "number", 0.0, open_minimum=True, help="Norm to which gradients are clipped."
    ),
    Option(
        "target_kl",
        None,
        "number",
        0.0,
        open_minimum=True,
        optional=True,
        unit="nats",
        help="Divergence of a minibatch beyond which the rest of the update is left out; None never stops.",
    ),
    Option(
        "adaptive_kl",
        None,
        "number",
        0.0,
        open_minimum=True,
        optional=True,
        unit="nats",
        help="Divergence of an update that the learning rate is steered to; None leaves the rate alone.",
    ),
)

SPINE_OPTIONS: Options = (
    Option(
        "share_parameters",
        False,
        "boolean",
        help="Whether agents with equal spaces share one network, trained on the samples of all of them.",
    ),
    Option(
        "normalize_observations",
        False,
        "boolean",
        help="Whether observations are standardised by running statistics and clipped to +-10.",
    ),
    Option(
        "normalize_rewards",
        False,
        "boolean",
        help="Whether rewards are divided by the running deviation of the discounted return.",
    ),
    Option(
        "recurrent",
        False,
        "boolean",
        help="Whether the last hidden layer of actor and critic is a gated recurrent unit.",
    ),
)

NETWORK_OPTIONS: Options = (
    Option("network.hidden_sizes", (64, 64), "integers", 1, unit="units", help="Units of each hidden layer."),
    Option(
        "network.activation",
        "tanh",
        "choice",
        choices=tuple(ACTIVATIONS),
        help="Activation of the hidden layers.",
    ),
)

IPPO_OPTIONS: Options = (*ROLLOUT_OPTIONS, *PROXIMAL_OPTIONS, *SPINE_OPTIONS, *NETWORK_OPTIONS)
"""Those of the learners that clip the surrogate and know no limit: IPPO and ParameterizedIPPO."""


def check_config(options: Options, overrides: Mapping[str, Any] | None, owner: str) -> dict[str, Any]:
    """Lay overrides over the defaults and check every value.

    Args:
        options: What the learner declares.
        overrides: What differs from the defaults; None means nothing. A dotted name may be written as such
            (`{"network.activation": "relu"}`) or nested.
        owner: The learner's name, for error texts.

    Returns:
        A new mapping with every option at its checked value, dotted names nested.

    Raises:
        ConfigError: If an option is unknown (the text names the nearest known one), or a value has the wrong
            type or lies outside its range.
    """
    if overrides is not None and not isinstance(overrides, Mapping):
        raise ConfigError(f"{owner} takes a mapping of options, got {type(overrides).__name__}.")
    nests = {option.name.partition(".")[0] for option in options if "." in option.name}
    given = _flat(overrides or {}, nests, owner)
    check_names(given, [option.name for option in options], owner)
    checked = {
        option.name: option.check(given[option.name], owner) if option.name in given else option.default
        for option in options
    }
    nested: dict[str, Any] = {}
    for name, value in checked.items():
        outer, _, inner = name.rpartition(".")
        nested = merge_configs(nested, {outer: {inner: value}} if outer else {name: value})
    return nested


def refuse_together(config: Mapping[str, Any], first: str, second: str, owner: str) -> None:
    """Refuse two options that contradict each other.

    Raises:
        ConfigError: If both are on.
    """
    if config[first] and config[second]:
        raise ConfigError(
            f"{owner} options {first!r} and {second!r} contradict each other (got {config[first]!r} and "
            f"{config[second]!r}): leave one of them off."
        )


def _flat(given: Mapping[str, Any], nests: set[str], owner: str) -> dict[str, Any]:
    """Write nested names with dots."""
    flat: dict[str, Any] = {}
    for name, value in given.items():
        if name in nests and not isinstance(value, Mapping):
            raise ConfigError(f"{owner} option {name!r} must be a mapping of options, got {value!r}.")
        inner = {f"{name}.{key}": item for key, item in value.items()} if name in nests else {name: value}
        flat |= inner
    return flat
