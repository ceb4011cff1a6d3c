"""What a learner under a cost limit keeps: the cost critic, episodic costs, and what holds the limit.

A cost critic has parameters, an optimiser, a gradient norm and a random key of its own: a learner whose
limit does not bind learns what the same learner without a limit would.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from dressage.equations.lagrange import PIDMultiplier
from dressage.learning.cost_tracking import CostTracking
from dressage.learning.critic_fit import CriticSamples, ValueFit, flat_samples
from dressage.learning.flat_parameters import OPTIMIZER
from dressage.learning.proximal import ProximalLearner
from dressage.learning.records import Outcome
from dressage.learning.targets import Targets, advantage_targets
from dressage.learning.values import following_values, rollout_values
from dressage.networks import Critic, apply_critic

COST_KEY = (
    0x63_6F_73_74  # Folded into keys, so that the cost critic takes no number from the policy's stream.
)


class CostHyperparameters(struct.PyTreeNode):
    """The traced numbers of a limit.

    Attributes:
        limits: `[A]` what an episode of each agent of the group may cost.
        gamma: Discount a step of cost values, in [0, 1].
        gae_lambda: Trace decay of cost advantages, in [0, 1].
        budget_gamma: Discount a step of the episode's cost that the limit is compared with, in [0, 1].
        value_coef: Weight of the cost critic's loss, >= 0.
    """

    limits: Array
    gamma: Array
    gae_lambda: Array
    budget_gamma: Array
    value_coef: Array

    def for_agent(self, place: Array | int) -> "CostHyperparameters":
        """Return the numbers of one agent: its limit alone, `[]`."""
        return self.replace(limits=self.limits[place])


class Constraint(struct.PyTreeNode):
    """The state of one agent's limit.

    Attributes:
        critic: Parameters of the cost critic's layers.
        opt_state: Adam's state over the flat vector of them.
        tracking: The costs of episodes that the limit is compared with.
        multiplier: `[]` the Lagrange multiplier; None for learners without.
        control: The state of a PID-controlled multiplier, or None.
        rejections: `[]` int32 updates in a row whose line search accepted nothing; None without line search.
        raw_tracking: The costs as the environment gave them, where `tracking` follows shaped ones; else None.
        predictor: Parameters of the failure predictor, or None.
        predictor_opt_state: Adam's state of it, or None.
    """

    critic: Any
    opt_state: Any
    tracking: CostTracking
    multiplier: Array | None = None
    control: PIDMultiplier | None = None
    rejections: Array | None = None
    raw_tracking: CostTracking | None = None
    predictor: Any = None
    predictor_opt_state: Any = None

    def restart(self) -> "Constraint":
        """Forget the costs of open episodes, whose environments start anew."""
        raw = None if self.raw_tracking is None else self.raw_tracking.restart()
        return self.replace(tracking=self.tracking.restart(), raw_tracking=raw)

    @classmethod
    def start(cls, critic: Critic, key: Array, obs_dim: int, copies: int) -> "Constraint":
        """Draw the cost critic, and begin with no cost seen.

        Args:
            critic: The critic's module.
            key: The agent's initialisation key; what is drawn here does not depend on what else it draws.
            obs_dim: Length of an observation.
            copies: Environment copies.
        """
        layers = critic.init(jax.random.fold_in(key, COST_KEY), jnp.zeros((1, obs_dim)))["params"]
        return cls(layers, OPTIMIZER.init(layers), CostTracking.start((copies,)))


class CostTargets(NamedTuple):
    """What a rollout's costs say.

    Attributes:
        values: `[T, B]` of the cost critic.
        targets: Raw cost advantages and what the critic is fitted to, `[T, B]`.
    """

    values: Array
    targets: Targets


def cost_targets(
    critic: Critic,
    layers: Any,  # noqa: ANN401 (Flax's own tree)
    features: Array,
    final_features: Array,
    outcome: Outcome,
    hyper: CostHyperparameters,
) -> CostTargets:
    """Estimate cost advantages and returns by GAE, as rewards' are; see `targets.advantage_targets`.

    Args:
        critic: The cost critic.
        layers: Its parameters.
        features: `[T, B, obs_dim]`, normalised.
        final_features: `[T, B, obs_dim]`, what each step really led to, normalised.
        outcome: The rollout; its costs are those that the limit is compared with.
        hyper: Discounts.
    """
    apply = partial(apply_critic, critic, layers, learning=True)
    values = rollout_values(apply, features)
    following = following_values(apply, values, final_features, outcome)
    targets = advantage_targets(
        reported_costs(outcome),
        outcome.terminated,
        outcome.episode_ends,
        values,
        following,
        outcome.valid,
        hyper.gamma,
        hyper.gae_lambda,
    )
    return CostTargets(values, targets)


def track_costs(
    tracking: CostTracking, outcome: Outcome, gamma: Array, costs: Array | None = None
) -> tuple[CostTracking, Array]:
    """Follow the episodes' costs through a rollout; returns the trackers and how many episodes finished."""
    counted = reported_costs(outcome) if costs is None else costs
    return tracking.update(counted, outcome.episode_ends, gamma, outcome.valid)


def reported_costs(outcome: Outcome) -> Array:
    """Return the costs `[T, B]`; a learner under a limit is made for environments with costs alone."""
    assert outcome.costs is not None, "learners under a limit refuse environments without costs"
    return outcome.costs


def known_cost(tracking: CostTracking) -> Array:
    """Return the mean cost of the latest finished episodes for metrics, NaN before any."""
    return jnp.where(tracking.seen, tracking.last_return, jnp.nan)


def cost_samples(
    features: Array, costs: CostTargets, outcome: Outcome, rows: np.ndarray | None
) -> CriticSamples:
    """Lay a rollout out for the cost critic."""
    return flat_samples(CriticSamples(features, costs.targets.returns, costs.values, outcome.valid), rows)


def value_fit(proximal: ProximalLearner, weight: Array) -> ValueFit:
    """Return how critics are fitted beside a proximal learner: its way, with a weight of their own."""
    return ValueFit(
        weight=weight,
        max_grad_norm=proximal.hyper.max_grad_norm,
        clip_eps=proximal.hyper.clip_eps if proximal.clip_value_loss else None,
        epochs=proximal.epochs,
        minibatches=proximal.minibatches,
    )
