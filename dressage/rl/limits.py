"""What the learners under a cost limit share: their options, and each agent's limit."""

from typing import Any

import jax.numpy as jnp
from jax import Array

from dressage.config import Option, suggest
from dressage.errors import ConfigError
from dressage.learning.constraint import CostHyperparameters
from dressage.learning.group_spaces import GroupSpaces
from dressage.rl.environments import TrainingEnv
from dressage.rl.options import Options


def cost_options(cost_gae_lambda: float) -> Options:
    """Return the options of a limit.

    Args:
        cost_gae_lambda: Default trace decay of cost advantages, which learners differ in.
    """
    return (
        Option(
            "cost_limit",
            None,
            "number by agent",
            0.0,
            optional=True,
            unit="cost an episode",
            help="What an episode may cost on average, undiscounted unless budget_gamma says else. Required.",
        ),
        Option("cost_key", "cost", "text", help="Key of an agent's info under which a step's cost stands."),
        Option(
            "cost_default",
            None,
            "number",
            optional=True,
            unit="cost a step",
            help="Cost of a step whose info lacks the key; None makes that an error.",
        ),
        Option("cost_gamma", 0.99, "number", 0.0, 1.0, help="Discount a step of cost values."),
        Option(
            "cost_gae_lambda", cost_gae_lambda, "number", 0.0, 1.0, help="Trace decay of cost advantages."
        ),
        Option(
            "budget_gamma",
            1.0,
            "number",
            0.0,
            1.0,
            help="Discount a step of the episode's cost that the limit is compared with.",
        ),
        Option("cost_value_coef", 0.5, "number", 0.0, help="Weight of the cost critic's loss."),
    )


def require_limit(config: dict[str, Any], owner: str) -> dict[str, Any]:
    """Refuse options without a limit.

    Raises:
        ConfigError: If `cost_limit` was not given.
    """
    if config["cost_limit"] is None:
        raise ConfigError(
            f"{owner} needs the option 'cost_limit': what an episode may cost on average, undiscounted; one "
            "number for all agents, or a mapping with one for each of them."
        )
    return config


def cost_hyperparameters(
    config: dict[str, Any], spaces: GroupSpaces, env: TrainingEnv, owner: str
) -> CostHyperparameters:
    """Return limits and discounts of a group's agents.

    Raises:
        ConfigError: If limits by name leave an agent out or name one that does not exist.
    """
    limits = agent_limits(config, tuple(agent for group in env.groups for agent in group.agents), owner)
    return CostHyperparameters(
        limits=jnp.array([limits[agent] for agent in spaces.agents], jnp.float32),
        gamma=_number(config["cost_gamma"]),
        gae_lambda=_number(config["cost_gae_lambda"]),
        budget_gamma=_number(config["budget_gamma"]),
        value_coef=_number(config["cost_value_coef"]),
    )


def agent_limits(config: dict[str, Any], agents: tuple[str, ...], owner: str) -> dict[str, float]:
    """Return the limit of each agent.

    Args:
        config: Checked options.
        agents: All agents of the environment.
        owner: The learner's name, for error texts.

    Raises:
        ConfigError: If limits by name leave an agent out or name one that does not exist.
    """
    limit = config["cost_limit"]
    if not isinstance(limit, dict):
        return dict.fromkeys(agents, float(limit))
    unknown = [name for name in limit if name not in agents]
    if unknown:
        raise ConfigError(
            f"{owner} option 'cost_limit' names {unknown[0]!r}, which is no agent of this environment."
            f"{suggest(unknown[0], agents)}"
        )
    missing = [agent for agent in agents if agent not in limit]
    if missing:
        raise ConfigError(
            f"{owner} option 'cost_limit' has no limit for {', '.join(map(repr, missing))}; give every agent "
            "one, or one number for all."
        )
    return {agent: float(limit[agent]) for agent in agents}


def trained_layers(state: Any) -> tuple[dict[str, Any], Any]:  # noqa: ANN401 (a record, or what was read back)
    """Return the layers of an agent's actor and critic by name, and those of its cost critic.

    Args:
        state: The agent's entry in `TrainResult.agent_states`.
    """
    if isinstance(state, dict):
        return state["params"]["params"], state["constraint"]["critic"]
    return state.params["params"], state.constraint.critic


def _number(value: float) -> Array:
    return jnp.asarray(value, jnp.float32)
