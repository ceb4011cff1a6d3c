"""Lagrangian IPPO: independent PPO whose agents each pay a price for cost that keeps their limit."""

import math
from typing import Any

import jax.numpy as jnp
from jax import Array

from dressage.config import Option
from dressage.errors import ConfigError
from dressage.learning.architecture import Architecture
from dressage.learning.group_spaces import GroupSpaces
from dressage.learning.groups import Learner
from dressage.learning.lagrangian import LagrangianLearner, MultiplierRule
from dressage.learning.specs import AgentSpec
from dressage.networks import ActorCritic, ActorCriticWithCost
from dressage.rl.algorithm import Algorithm
from dressage.rl.environments import TrainingEnv
from dressage.rl.limits import cost_hyperparameters, cost_options, require_limit, trained_layers
from dressage.rl.options import NETWORK_OPTIONS, PROXIMAL_OPTIONS, ROLLOUT_OPTIONS, SPINE_OPTIONS
from dressage.rl.proximal import check_proximal, proximal_learner, proximal_steps
from dressage.rl.results import TrainResult

__all__ = ["OPTIONS", "ActorCriticWithCost", "IPPO_Lagrangian", "trained_networks"]

CONTROL = (0.5, 0.05, 0.0)
"""Gains of the multiplier where neither they nor a learning rate are given."""

MULTIPLIER_OPTIONS = (
    Option(
        "multiplier_pid",
        CONTROL,
        "numbers",
        0.0,
        optional=True,
        unit="per unit of cost",
        help="Proportional, integral and derivative gain of the multiplier in an episode's excess cost; "
        "None where multiplier_learning_rate is given.",
    ),
    Option(
        "multiplier_learning_rate",
        None,
        "number",
        0.0,
        optional=True,
        unit="per unit of cost",
        help="Rate of a plain projected gradient in place of multiplier_pid; without damping it circles.",
    ),
    Option("multiplier_init", 0.0, "number", 0.0, help="The first multiplier."),
    Option("multiplier_min", 0.0, "number", 0.0, help="The least multiplier."),
    Option("multiplier_max", None, "number", 0.0, optional=True, help="The greatest; None for no bound."),
)

# A multiplier belongs to one agent, so agents do not share what they learn.
OPTIONS = (
    *ROLLOUT_OPTIONS,
    *PROXIMAL_OPTIONS,
    *(option for option in SPINE_OPTIONS if option.name != "share_parameters"),
    *cost_options(cost_gae_lambda=0.95),
    *MULTIPLIER_OPTIONS,
    *NETWORK_OPTIONS,
)


class IPPO_Lagrangian(Algorithm):
    """Independent PPO under a limit on each agent's cost.

    Every agent has a multiplier, the price of its cost. After each rollout in which an episode of that agent
    finished, the multiplier moves by how far the mean cost of these episodes misses the limit; then the
    policy follows the reward's advantages less the multiplier times the cost's. The cost critic is a network
    of its own with an optimiser of its own: with multiplier 0 the policy learned is that of `IPPO`, bit for
    bit.

    Reference:
        Ray et al. 2019, "Benchmarking Safe Exploration in Deep Reinforcement Learning"; Stooke, Achiam,
        Abbeel 2020, "Responsive Safety in Reinforcement Learning by PID Lagrangian Methods", for
        `multiplier_pid`.
    """

    NAME = "IPPO_Lagrangian"
    OPTIONS = OPTIONS

    def __init__(self, cfg: dict[str, Any], *, seed: int = 0) -> None:
        """Check options and seed; nothing is compiled.

        Args:
            cfg: Options that differ from the defaults; `cost_limit` must be among them.
            seed: As for `Algorithm`.

        Raises:
            ConfigError: If `cost_limit` is missing, an option is unknown, or a value is not legal.
        """
        super().__init__(cfg, seed=seed)

    @classmethod
    def validate(cls, overrides: dict[str, Any] | None = None) -> dict[str, Any]:
        """Merge options with the defaults and check them; see `Algorithm.validate`."""
        config = require_limit(check_proximal(super().validate(overrides), cls.NAME), cls.NAME)
        if config["multiplier_learning_rate"] is not None and "multiplier_pid" not in (overrides or {}):
            config["multiplier_pid"] = None
        _check_rule(config, cls.NAME)
        return config

    def make_learner(
        self, spec: AgentSpec, spaces: GroupSpaces, env: TrainingEnv, optimizer_steps: int
    ) -> Learner:
        """Return the Lagrangian learner of one agent; see `Algorithm.make_learner`."""
        config = self.config
        return LagrangianLearner(
            proximal=proximal_learner(config, spec, optimizer_steps),
            cost=cost_hyperparameters(config, spaces, env, self.NAME),
            rule=_multiplier_rule(config),
            critic=Architecture.of(config).critic(),
        )

    def optimizer_steps(self, timesteps: int, copies: int) -> int:
        """Return the optimiser applications that `timesteps` steps over `copies` copies make."""
        return proximal_steps(self.config, timesteps, copies)


def trained_networks(result: TrainResult) -> dict[str, dict[str, ActorCriticWithCost]]:
    """Return every agent's networks, bound to what was trained; `rl.model_io.save_models` takes them.

    Args:
        result: What `IPPO_Lagrangian.train` returned, without recurrent networks.

    Raises:
        ConfigError: If the networks are recurrent: actor and cost critic then have no form in common.
    """
    architecture, networks = Architecture.of(result.config), {}
    if architecture.recurrent:
        raise ConfigError("Recurrent networks have no ActorCriticWithCost: their cost critic has no memory.")
    for spaces in result.spaces:
        both = architecture.network(spaces.spec)
        assert isinstance(both, ActorCritic), "only recurrent networks are something else"
        network = ActorCriticWithCost(both.actor, both.critic, architecture.critic())
        for agent in spaces.agents:
            layers, cost_critic = trained_layers(result.agent_states[agent])
            bound = network.bind({"params": {**layers, "cost_critic": cost_critic}})
            networks[agent] = {"actor_critic_with_cost": bound}
    return networks


def _check_rule(config: dict[str, Any], owner: str) -> None:
    gains, rate = config["multiplier_pid"], config["multiplier_learning_rate"]
    if (gains is None) == (rate is None):
        raise ConfigError(
            f"{owner} moves multipliers by 'multiplier_pid' or by 'multiplier_learning_rate': give one of "
            f"them (got {gains!r} and {rate!r})."
        )
    if gains is not None and len(gains) != 3:
        raise ConfigError(
            f"{owner} option 'multiplier_pid' must be three gains (proportional, integral, derivative) or "
            f"None, got {gains!r}."
        )
    greatest = _greatest(config)
    for name in ("multiplier_min", "multiplier_init"):
        if config[name] > greatest:
            raise ConfigError(
                f"{owner} option {name!r} is {config[name]:g}, above multiplier_max ({greatest:g})."
            )


def _multiplier_rule(config: dict[str, Any]) -> MultiplierRule:
    controlled = config["multiplier_pid"] is not None
    gains = config["multiplier_pid"] if controlled else (0.0, config["multiplier_learning_rate"], 0.0)
    return MultiplierRule(
        initial=_number(max(config["multiplier_init"], config["multiplier_min"])),
        minimum=_number(config["multiplier_min"]),
        maximum=_number(_greatest(config)),
        proportional=_number(gains[0]),
        integral=_number(gains[1]),
        derivative=_number(gains[2]),
        controlled=controlled,
    )


def _greatest(config: dict[str, Any]) -> float:
    greatest = config["multiplier_max"]
    return math.inf if greatest is None else float(greatest)


def _number(value: float) -> Array:
    return jnp.asarray(value, jnp.float32)
