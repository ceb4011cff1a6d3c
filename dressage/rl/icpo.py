"""CPO, and ICPO: independent constrained policy optimisation with learned cost shaping."""

import warnings
from typing import Any, ClassVar

import jax.numpy as jnp
from flax import linen as nn
from jax import Array

from dressage.config import Option
from dressage.errors import ConfigError
from dressage.learning.architecture import Architecture
from dressage.learning.cpo import CPOLearner
from dressage.learning.failure_predictor import Shaping
from dressage.learning.group_spaces import GroupSpaces
from dressage.learning.groups import Learner
from dressage.learning.policy_step import TrustRegion
from dressage.learning.specs import AgentSpec
from dressage.networks import ActorCritic, CategoricalActor, ValueNetwork
from dressage.rl.algorithm import Algorithm
from dressage.rl.environments import TrainingEnv
from dressage.rl.limits import cost_hyperparameters, cost_options, require_limit, trained_layers
from dressage.rl.options import NETWORK_OPTIONS, PROXIMAL_OPTIONS, ROLLOUT_OPTIONS, SPINE_OPTIONS, Options
from dressage.rl.proximal import critic_learner, proximal_steps
from dressage.rl.results import TrainResult

__all__ = ["CPO", "CPO_OPTIONS", "ICPO", "OPTIONS", "CategoricalActor", "ValueNetwork", "trained_networks"]

REJECTIONS_WORTH_A_WARNING = 10

_CRITIC_OPTIONS = (
    "learning_epochs",
    "mini_batches",
    "learning_rate",
    "anneal_learning_rate",
    "value_coef",
    "max_grad_norm",
)
_NORMALIZERS = ("normalize_observations", "normalize_rewards")

REGION_OPTIONS: Options = (
    Option(
        "target_kl",
        0.01,
        "number",
        0.0,
        open_minimum=True,
        unit="nats",
        help="Largest mean divergence of an update from the policy before it.",
    ),
    Option("cg_iterations", 10, "integer", 1, help="Conjugate-gradient steps of each of the two solves."),
    Option("cg_damping", 0.1, "number", 0.0, help="Added to the diagonal of the divergence's Hessian."),
    Option(
        "fisher_samples",
        512,
        "integer",
        1,
        optional=True,
        unit="samples",
        help="Samples, drawn from the rollout, that Hessian products use; None for all of them.",
    ),
    Option("line_search_steps", 15, "integer", 1, help="Lengths of a step that the line search tries."),
    Option(
        "line_search_decay",
        0.8,
        "number",
        0.0,
        1.0,
        open_minimum=True,
        open_maximum=True,
        help="Factor by which the line search shortens a step that was refused.",
    ),
)

SHAPING_OPTIONS: Options = (
    Option(
        "shaping_horizon",
        20,
        "integer",
        1,
        unit="steps",
        help="Steps ahead, this one included, in which a positive cost counts as a failure to predict.",
    ),
    Option(
        "shaping_coef",
        1.0,
        "number",
        0.0,
        unit="cost",
        help="Cost that a predicted failure adds to a step, times its probability; 0 turns shaping off.",
    ),
    Option("shaping_steps", 25, "integer", 1, help="Adam steps of the predictor a rollout, over all of it."),
    Option("shaping_learning_rate", 1e-3, "number", 0.0, open_minimum=True, help="Adam's step size there."),
    Option("shaping_hidden_size", 32, "integer", 1, unit="units", help="Units of the predictor's layer."),
)


def _options(cost_gae_lambda: float) -> Options:
    return (
        *ROLLOUT_OPTIONS,
        *(option for option in PROXIMAL_OPTIONS if option.name in _CRITIC_OPTIONS),
        *(option for option in SPINE_OPTIONS if option.name in _NORMALIZERS),
        *cost_options(cost_gae_lambda),
        *REGION_OPTIONS,
    )


CPO_OPTIONS: Options = (*_options(cost_gae_lambda=0.95), *NETWORK_OPTIONS)
OPTIONS: Options = (*_options(cost_gae_lambda=0.5), *SHAPING_OPTIONS, *NETWORK_OPTIONS)


class ICPO(Algorithm):
    """Independent constrained policy optimisation with learned cost shaping.

    Every agent moves its policy by the step that gains most reward within a trust region and, as far as the
    rollout tells, keeps its cost limit. Costs are shaped before that: a predictor learns which steps are soon
    followed by a positive cost, and its probability times `shaping_coef` is added to each step's cost. Shaped
    costs drive cost advantages, cost critic and the comparison with the limit, so the raw cost, which is
    reported beside, stays below what the limit would allow.

    Reference:
        Achiam et al. 2017, "Constrained Policy Optimization", the shaping in section 6.3.
    """

    NAME: ClassVar[str] = "ICPO"
    OPTIONS: ClassVar[Options] = OPTIONS

    def __init__(self, cfg: dict[str, Any], *, seed: int = 0) -> None:
        """Check options and seed; nothing is compiled.

        Args:
            cfg: Options that differ from the defaults; `cost_limit` must be among them.
            seed: As for `Algorithm`.

        Raises:
            ConfigError: If `cost_limit` is missing, an option is unknown, or a value is not legal.
        """
        super().__init__(cfg, seed=seed)
        self._warned: set[str] = set()

    @classmethod
    def validate(cls, overrides: dict[str, Any] | None = None) -> dict[str, Any]:
        """Merge options with the defaults and check them; see `Algorithm.validate`."""
        return require_limit(super().validate(overrides), cls.NAME)

    def make_learner(
        self, spec: AgentSpec, spaces: GroupSpaces, env: TrainingEnv, optimizer_steps: int
    ) -> Learner:
        """Return the trust-region learner of one agent; see `Algorithm.make_learner`."""
        config = self.config
        return CPOLearner(
            proximal=critic_learner(config, spec, optimizer_steps),
            cost=cost_hyperparameters(config, spaces, env, self.NAME),
            region=TrustRegion(
                delta=_number(config["target_kl"]),
                damping=_number(config["cg_damping"]),
                decay=_number(config["line_search_decay"]),
                iterations=config["cg_iterations"],
                attempts=config["line_search_steps"],
                fisher_samples=config["fisher_samples"],
            ),
            shaping=self._shaping(),
            critic=Architecture.of(config).critic(),
        )

    def optimizer_steps(self, timesteps: int, copies: int) -> int:
        """Return how often `timesteps` steps over `copies` copies apply the optimiser of each critic."""
        return proximal_steps(self.config, timesteps, copies)

    def watch(self, metrics: dict[str, dict[str, float]]) -> None:
        """Warn, once an agent, where its line search keeps refusing every step."""
        stuck = {
            agent
            for agent, numbers in metrics.items()
            if numbers["rejections_in_a_row"] >= REJECTIONS_WORTH_A_WARNING
        }
        for agent in sorted(stuck - self._warned):
            self._warned.add(agent)
            warnings.warn(
                f"{self.NAME}: the last {REJECTIONS_WORTH_A_WARNING} updates of agent {agent!r} moved no "
                "policy, since the line search refused every step. Larger rollouts make better estimates; a "
                "smaller target_kl makes shorter steps.",
                stacklevel=2,
            )

    def _shaping(self) -> Shaping | None:
        config = self.config
        if config["shaping_coef"] == 0:
            return None
        return Shaping(
            coef=_number(config["shaping_coef"]),
            learning_rate=_number(config["shaping_learning_rate"]),
            horizon=config["shaping_horizon"],
            steps=config["shaping_steps"],
            hidden_size=config["shaping_hidden_size"],
        )


class CPO(ICPO):
    """Constrained policy optimisation of independent agents: `ICPO` without its cost shaping.

    Reference:
        Achiam et al. 2017, "Constrained Policy Optimization".
    """

    # The one inheritance between learners; a published relation.
    NAME = "CPO"
    OPTIONS = CPO_OPTIONS

    def __init__(self, cfg: dict[str, Any] | None = None, *, seed: int = 0) -> None:
        """Check options and seed; see `ICPO`. Options of cost shaping are refused."""
        super().__init__(cfg or {}, seed=seed)

    @classmethod
    def validate(cls, overrides: dict[str, Any] | None = None) -> dict[str, Any]:
        """Merge options with the defaults and check them; see `Algorithm.validate`.

        Raises:
            ConfigError: As there, and if an option of ICPO's cost shaping is given.
        """
        shaping = {option.name for option in SHAPING_OPTIONS}
        given = sorted(shaping & set(overrides or ()))
        if given:
            raise ConfigError(f"CPO has no option {given[0]!r}: costs are not shaped. ICPO shapes them.")
        return super().validate(overrides)

    def _shaping(self) -> None:
        return None


def trained_networks(result: TrainResult) -> dict[str, dict[str, nn.Module]]:
    """Return every agent's actor, critic and cost critic, bound; `rl.model_io.save_models` takes them.

    Args:
        result: What `train` of `CPO` or `ICPO` returned.

    Returns:
        For each agent `actor`, a `CategoricalActor` where all of its actions are choices; `critic` and
        `cost_critic`, a `ValueNetwork` each.
    """
    architecture = Architecture.of(result.config)
    networks: dict[str, dict[str, nn.Module]] = {}
    for spaces in result.spaces:
        spec = spaces.spec
        network = architecture.network(spec)
        assert isinstance(network, ActorCritic), "the trust region is of a policy without memory"
        hidden, activation = architecture.hidden_sizes, architecture.activation
        actor: nn.Module = network.actor
        if spec.continuous_dim == 0:
            actor = CategoricalActor(
                spec.obs_dim, spec.action_dim, hidden_sizes=hidden, activation=activation
            )
        critic = ValueNetwork(spec.obs_dim, hidden_sizes=hidden, activation=activation)
        for agent in spaces.agents:
            layers, cost_layers = trained_layers(result.agent_states[agent])
            networks[agent] = {
                "actor": actor.bind({"params": layers["actor"]}),
                "critic": critic.bind({"params": layers["critic"]}),
                "cost_critic": critic.bind({"params": cost_layers}),
            }
    return networks


def _number(value: float) -> Array:
    return jnp.asarray(value, jnp.float32)
