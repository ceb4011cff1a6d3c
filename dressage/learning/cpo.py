"""The constrained trust-region learner: CPO, and with a failure predictor ICPO.

A rollout moves the policy by one step that is solved for reward and cost at once, then both critics are
fitted to it by minibatches. All agents of a group learn in one compiled update.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from dressage.equations.returns import centre_advantages
from dressage.equations.trust_region import StepCase
from dressage.learning.batches import Batch, explained_variance
from dressage.learning.constraint import (
    COST_KEY,
    Constraint,
    CostHyperparameters,
    CostTargets,
    cost_samples,
    cost_targets,
    known_cost,
    reported_costs,
    track_costs,
    value_fit,
)
from dressage.learning.cost_tracking import CostTracking
from dressage.learning.critic_fit import CriticSamples, FitResult, fit_critic, flat_samples
from dressage.learning.failure_predictor import (
    Prediction,
    Shaping,
    predict_failures,
    predictor_inputs,
    start_predictor,
)
from dressage.learning.flat_parameters import OPTIMIZER
from dressage.learning.policy_head import PolicyHead
from dressage.learning.policy_step import (
    PolicySamples,
    PolicyStep,
    TrustRegion,
    improve_policy,
    sample_weights,
)
from dressage.learning.proximal import Metrics, ProximalLearner
from dressage.learning.records import AgentState, Experience, Observed, Outcome
from dressage.learning.shuffle import permutation
from dressage.networks import ActorCritic, Critic, Memory, PolicyOutputs

FISHER_KEY = 0x68_65_73_73  # Folded into the key of an update, to choose the samples of Hessian products.

METRIC_NAMES = (
    "case",
    "accepted",
    "step_fraction",
    "attempts",
    "rejections_in_a_row",
    "kl",
    "reward_gain",
    "cost_change",
    "multiplier",
    "cost_multiplier",
    "reward_slope",
    "cost_slope",
    "residual",
    "finite",
    "entropy",
    "cost_estimate",
    "cost_limit",
    "cost_excess",
    "finished_episodes",
    "value_loss",
    "cost_value_loss",
    "explained_variance",
    "learning_rate",
    "skipped_minibatches",
)
SHAPING_METRICS = ("shaped_cost_estimate", "predictor_loss", "failure_label_rate", "failure_probability")


class _Costs(NamedTuple):
    """A rollout's costs as the update takes them.

    Attributes:
        constraint: The constraint with trackers and predictor moved on.
        outcome: The rollout, its costs shaped where they are.
        excess: `[]` of the episodic cost over its limit, in cost a step.
        finished: `[]` episodes that finished.
        metrics: What there is to report of them.
    """

    constraint: Constraint
    outcome: Outcome
    excess: Array
    finished: Array
    metrics: Metrics


class CPOLearner(struct.PyTreeNode):
    """Constrained policy optimisation of one agent.

    Attributes:
        proximal: Acting, targets, normalisers, and how critics are fitted; its clipped update is not used.
        cost: Limits and discounts.
        region: The trust region.
        shaping: How costs are shaped by a failure predictor; None leaves them as they are.
        critic: The cost critic.
    """

    proximal: ProximalLearner
    cost: CostHyperparameters
    region: TrustRegion
    shaping: Shaping | None
    critic: Critic = struct.field(pytree_node=False)

    @property
    def head(self) -> PolicyHead:
        """How outputs become distributions and actions."""
        return self.proximal.head

    @property
    def metric_names(self) -> tuple[str, ...]:
        """What `learn` reports."""
        return METRIC_NAMES if self.shaping is None else (*METRIC_NAMES, *SHAPING_METRICS)

    @property
    def network(self) -> ActorCritic:
        """Actor and critic of the reward."""
        network = self.proximal.network
        assert isinstance(network, ActorCritic), "the trust region is of a policy without memory"
        return network

    @property
    def minibatches(self) -> int:
        """Parts into which a pass over a rollout is cut."""
        return self.proximal.minibatches

    def for_agent(self, place: Array | int) -> "CPOLearner":
        """Return the learner of one agent of a group, with its own limit."""
        return self.replace(cost=self.cost.for_agent(place))

    def init(self, key: Array, copies: int) -> AgentState:
        """Draw parameters, those of actor and critic as every learner does."""
        spec = self.head.spec
        state = self.proximal.init(key, copies)
        constraint = Constraint.start(self.critic, key, spec.obs_dim, copies)
        constraint = constraint.replace(rejections=jnp.int32(0))
        if self.shaping is not None:
            predictor, opt_state = start_predictor(self.shaping, key, spec)
            constraint = constraint.replace(
                raw_tracking=CostTracking.start((copies,)), predictor=predictor, predictor_opt_state=opt_state
            )
        opt_state = OPTIMIZER.init(state.params["params"]["critic"])  # The actor needs none.
        return state.replace(opt_state=opt_state, constraint=constraint)

    def start_memory(self, batch: tuple[int, ...]) -> Memory | None:
        """Return what the policy remembers at an episode's start: nothing."""
        return self.proximal.start_memory(batch)

    def step_policy(self, state: AgentState, observed: Observed) -> tuple[Memory | None, PolicyOutputs]:
        """Apply the actor to raw observations."""
        return self.proximal.step_policy(state, observed)

    def learn(
        self, state: AgentState, experience: Experience, key: Array, rows: np.ndarray | None = None
    ) -> tuple[AgentState, Metrics]:
        """Take in the costs, move the policy by one step, fit both critics; see `ProximalLearner.learn`."""
        records, advantages, after = self.proximal.value_rollout(state, experience)
        finals = self.proximal.normalized(state, experience.outcome.final_features)
        priced = self._price(state.constraint, experience, records.features, finals)
        constraint, outcome = priced.constraint, priced.outcome
        costs = cost_targets(self.critic, constraint.critic, records.features, finals, outcome, self.cost)
        moved = self._move_policy(state, records, costs, outcome, priced.excess, key, rows)
        values = CriticSamples(records.features, records.returns, records.values, outcome.valid)
        critics = state.params["params"]["critic"], constraint.critic
        reward_fit, cost_fit = self._fit_critics(
            state,
            critics,
            flat_samples(values, rows),
            cost_samples(records.features, costs, outcome, rows),
            key,
        )
        refused = ~moved.trial.accepted & (moved.solved.case != StepCase.STATIONARY)
        rejections = jnp.where(refused, _rejections(constraint) + 1, 0)
        _, deviation = centre_advantages(advantages, outcome.valid)
        metrics = (
            self._metrics(moved, deviation)
            | priced.metrics
            | {
                "rejections_in_a_row": rejections.astype(jnp.float32),
                "value_loss": reward_fit.loss,
                "cost_value_loss": cost_fit.loss,
                "explained_variance": explained_variance(records),
                "learning_rate": self.proximal.rate(state.learning_rate, state.optimizer_steps),
                "skipped_minibatches": (reward_fit.skipped + cost_fit.skipped) / 2,
            }
        )
        return after.replace(
            params={"params": {"actor": moved.layers, "critic": reward_fit.layers}},
            opt_state=reward_fit.opt_state,
            optimizer_steps=state.optimizer_steps + reward_fit.applications,
            constraint=constraint.replace(
                critic=cost_fit.layers, opt_state=cost_fit.opt_state, rejections=rejections
            ),
        ), metrics

    def _price(
        self, constraint: Constraint, experience: Experience, features: Array, finals: Array
    ) -> _Costs:
        """Shape the costs where that is asked for, and follow the episodes' costs through the rollout."""
        outcome, gamma = experience.outcome, self.cost.budget_gamma
        metrics: Metrics = {}
        if self.shaping is not None:
            assert constraint.raw_tracking is not None, "init starts it wherever costs are shaped"
            raw_tracking, _ = track_costs(constraint.raw_tracking, outcome, gamma)
            inputs = predictor_inputs(self.head.spec, features, experience.actions, finals)
            predicted = predict_failures(
                self.shaping,
                constraint.predictor,
                constraint.predictor_opt_state,
                inputs,
                reported_costs(outcome),
                outcome,
            )
            shaped = reported_costs(outcome) + self.shaping.coef * predicted.probabilities
            outcome = outcome.replace(costs=shaped)
            constraint = constraint.replace(
                raw_tracking=raw_tracking,
                predictor=predicted.predictor,
                predictor_opt_state=predicted.opt_state,
            )
            metrics = _prediction_metrics(predicted)
        tracking, finished = track_costs(constraint.tracking, outcome, gamma)
        estimate = known_cost(tracking)
        metrics |= {} if constraint.raw_tracking is None else {"shaped_cost_estimate": estimate}
        # The surrogate is a mean a step, so the limit of an episode has to become one too.
        excess = (tracking.last_return - self.cost.limits) * tracking.last_scale
        metrics |= {
            "cost_estimate": known_cost(constraint.raw_tracking or tracking),
            "cost_limit": self.cost.limits,
            "cost_excess": excess,
            "finished_episodes": finished.astype(jnp.float32),
        }
        return _Costs(constraint.replace(tracking=tracking), outcome, excess, finished, metrics)

    def _move_policy(
        self,
        state: AgentState,
        records: Batch,
        costs: CostTargets,
        outcome: Outcome,
        excess: Array,
        key: Array,
        rows: np.ndarray | None,
    ) -> PolicyStep:
        cost_advantages, _ = centre_advantages(costs.targets.raw_advantages, outcome.valid)
        # Laid out as the proximal learner does, which blanks what is no sample; the cost rides in `values`.
        batch = self.proximal.arrange(records.replace(values=cost_advantages), None, outcome, rows)
        number = batch.advantages.shape[0]
        samples = PolicySamples(
            features=batch.features,
            action_mask=batch.action_mask,
            actions=batch.actions,
            advantages=batch.advantages,
            cost_advantages=batch.values,
            weights=sample_weights(batch.valid, number),
        )
        wanted = self.region.fisher_samples
        fisher_rows = None
        if wanted is not None and wanted < number:
            fisher_rows = permutation(jax.random.fold_in(key, FISHER_KEY), number)[:wanted]
        layers = state.params["params"]["actor"]
        actor = self.network.actor
        return improve_policy(self.head, actor, layers, samples, excess, self.region, fisher_rows)

    def _fit_critics(
        self,
        state: AgentState,
        critics: tuple[Any, Any],
        values: CriticSamples,
        costs: CriticSamples,
        key: Array,
    ) -> tuple[FitResult, FitResult]:
        """Fit the critic of the reward and that of the cost, each with its own optimiser and norm."""
        fit = value_fit(self.proximal, self.proximal.hyper.value_coef)
        steps = state.optimizer_steps + jnp.arange(fit.applications(values.returns.shape[0]))
        rates = self.proximal.rate(state.learning_rate, steps)
        reward = fit_critic(self.network.critic, critics[0], state.opt_state, values, key, fit, rates)
        cost = fit_critic(
            self.critic,
            critics[1],
            state.constraint.opt_state,
            costs,
            jax.random.fold_in(key, COST_KEY),
            fit.replace(weight=self.cost.value_coef),
            rates,
        )
        return reward, cost

    def _metrics(self, moved: PolicyStep, deviation: Array) -> Metrics:
        """Describe the policy's step; the price of cost is given in units of reward per unit of cost."""
        solved, trial = moved.solved, moved.trial
        recovering = solved.case == StepCase.RECOVERY
        return {
            "case": solved.case.astype(jnp.float32),
            "accepted": trial.accepted.astype(jnp.float32),
            "step_fraction": trial.fraction,
            "attempts": trial.attempts.astype(jnp.float32),
            "kl": trial.kl,
            "reward_gain": trial.gain,
            "cost_change": trial.cost_change,
            "multiplier": solved.multiplier,
            # No price is high enough where no step is lawful.
            "cost_multiplier": jnp.where(recovering, jnp.nan, solved.cost_multiplier * deviation),
            "reward_slope": jnp.sqrt(jnp.maximum(solved.q, 0.0)),
            "cost_slope": jnp.sqrt(jnp.maximum(solved.s, 0.0)),
            "residual": solved.residual,
            "finite": solved.finite.astype(jnp.float32),
            "entropy": moved.entropy,
        }


def _rejections(constraint: Constraint) -> Array:
    assert constraint.rejections is not None, "init counts them from 0"
    return constraint.rejections


def _prediction_metrics(predicted: Prediction) -> Metrics:
    return {
        "predictor_loss": predicted.loss,
        "failure_label_rate": predicted.label_rate,
        "failure_probability": predicted.probabilities.mean(),
    }
