"""The proximal learner that options describe; every learner that clips a surrogate starts from it."""

from typing import Any

import jax.numpy as jnp
from jax import Array

from dressage.equations.schedules import num_optimizer_steps_for_timesteps
from dressage.errors import ConfigError
from dressage.learning.architecture import Architecture
from dressage.learning.policy_head import PolicyHead
from dressage.learning.proximal import Hyperparameters, ProximalLearner
from dressage.learning.specs import AgentSpec
from dressage.rl.options import refuse_together


def check_proximal(config: dict[str, Any], owner: str) -> dict[str, Any]:
    """Check what options say together.

    Raises:
        ConfigError: If two of them contradict each other.
    """
    refuse_together(config, "anneal_learning_rate", "adaptive_kl", owner)
    if config["recurrent"] and not config["network"]["hidden_sizes"]:
        raise ConfigError(
            f"{owner} option 'recurrent' needs at least one hidden layer, the recurrent one; "
            "got network.hidden_sizes []."
        )
    return config


def proximal_learner(config: dict[str, Any], spec: AgentSpec, optimizer_steps: int) -> ProximalLearner:
    """Return the learner of one agent.

    Args:
        config: Checked options.
        spec: The agent's spaces.
        optimizer_steps: Applications of the whole training, where annealing ends.
    """
    return ProximalLearner(
        hyper=Hyperparameters(
            learning_rate=_number(config["learning_rate"]),
            gamma=_number(config["gamma"]),
            gae_lambda=_number(config["gae_lambda"]),
            clip_eps=_number(config["clip_eps"]),
            entropy_coef=_number(config["entropy_coef"]),
            value_coef=_number(config["value_coef"]),
            max_grad_norm=_number(config["max_grad_norm"]),
            target_kl=_optional(config["target_kl"]),
            adaptive_kl=_optional(config["adaptive_kl"]),
        ),
        head=PolicyHead(spec),
        network=Architecture.of(config).network(spec),
        epochs=config["learning_epochs"],
        minibatches=config["mini_batches"],
        total_optimizer_steps=optimizer_steps,
        anneal=config["anneal_learning_rate"],
        normalize_observations=config["normalize_observations"],
        normalize_rewards=config["normalize_rewards"],
        clip_value_loss=config["clip_value_loss"],
    )


def critic_learner(config: dict[str, Any], spec: AgentSpec, optimizer_steps: int) -> ProximalLearner:
    """Return the acting, valuing and critic-fitting part of a learner that moves its policy another way.

    Args:
        config: Checked options of such a learner.
        spec: The agent's spaces.
        optimizer_steps: As for `proximal_learner`.
    """
    unused = _number(0.0)
    return ProximalLearner(
        hyper=Hyperparameters(
            learning_rate=_number(config["learning_rate"]),
            gamma=_number(config["gamma"]),
            gae_lambda=_number(config["gae_lambda"]),
            clip_eps=unused,
            entropy_coef=unused,
            value_coef=_number(config["value_coef"]),
            max_grad_norm=_number(config["max_grad_norm"]),
        ),
        head=PolicyHead(spec),
        network=Architecture.of(config).network(spec),
        epochs=config["learning_epochs"],
        minibatches=config["mini_batches"],
        total_optimizer_steps=optimizer_steps,
        anneal=config["anneal_learning_rate"],
        normalize_observations=config["normalize_observations"],
        normalize_rewards=config["normalize_rewards"],
        clip_value_loss=False,
    )


def proximal_steps(config: dict[str, Any], timesteps: int, copies: int) -> int:
    """Return the optimiser applications that `timesteps` environment steps over `copies` copies make."""
    return num_optimizer_steps_for_timesteps(
        timesteps,
        copies * config["rollout_length"],
        config["learning_epochs"],
        config["mini_batches"],
    )


def _number(value: float) -> Array:
    return jnp.asarray(value, jnp.float32)


def _optional(value: float | None) -> Array | None:
    return None if value is None else _number(value)
