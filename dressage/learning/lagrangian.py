"""The Lagrangian learner: the proximal one, paid by reward less a price of cost that holds a limit.

The price is one multiplier an agent. It moves first, by the cost of the episodes that finished; then the
policy learns from the two advantages mixed at the new price, and the cost critic from the costs.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from dressage.equations.lagrange import PIDMultiplier, penalized_advantages, update_multiplier
from dressage.learning.constraint import (
    COST_KEY,
    Constraint,
    CostHyperparameters,
    cost_samples,
    cost_targets,
    known_cost,
    track_costs,
    value_fit,
)
from dressage.learning.critic_fit import fit_critic
from dressage.learning.policy_head import PolicyHead
from dressage.learning.proximal import METRIC_NAMES as PROXIMAL_METRICS
from dressage.learning.proximal import Metrics, ProximalLearner
from dressage.learning.records import AgentState, Experience, Observed, Outcome
from dressage.networks import Critic, Memory, PolicyOutputs

METRIC_NAMES = (
    *PROXIMAL_METRICS,
    "multiplier",
    "cost_estimate",
    "cost_limit",
    "finished_episodes",
    "cost_value_loss",
    "cost_gradient_norm",
)


class MultiplierRule(struct.PyTreeNode):
    """How a multiplier moves; all traced float32 scalars.

    Attributes:
        initial: The first multiplier, >= 0.
        minimum: The least, >= 0.
        maximum: The greatest.
        integral: Rate of the projected gradient, or the integral gain, per unit of cost, >= 0.
        proportional: Gain of the violation, >= 0; used under PID control alone.
        derivative: Gain of the cost's growth, >= 0; used under PID control alone.
        controlled: Whether the multiplier is under PID control.
    """

    initial: Array
    minimum: Array
    maximum: Array
    integral: Array
    proportional: Array
    derivative: Array
    controlled: bool = struct.field(pytree_node=False, default=False)


class LagrangianLearner(struct.PyTreeNode):
    """A proximal learner under a cost limit.

    Attributes:
        proximal: The learner of policy and value.
        cost: Limits and discounts.
        rule: How the multiplier moves.
        critic: The cost critic.
    """

    proximal: ProximalLearner
    cost: CostHyperparameters
    rule: MultiplierRule
    critic: Critic = struct.field(pytree_node=False)

    @property
    def head(self) -> PolicyHead:
        """How outputs become distributions and actions."""
        return self.proximal.head

    @property
    def metric_names(self) -> tuple[str, ...]:
        """What `learn` reports."""
        return METRIC_NAMES

    @property
    def minibatches(self) -> int:
        """Parts into which a pass over a rollout is cut."""
        return self.proximal.minibatches

    def for_agent(self, place: Array | int) -> "LagrangianLearner":
        """Return the learner of one agent of a group, with its own limit."""
        return self.replace(cost=self.cost.for_agent(place))

    def init(self, key: Array, copies: int) -> AgentState:
        """Draw parameters, those of actor and critic as without a limit."""
        constraint = Constraint.start(self.critic, key, self.head.spec.obs_dim, copies)
        control = PIDMultiplier.start(self.rule.initial) if self.rule.controlled else None
        return self.proximal.init(key, copies).replace(
            constraint=constraint.replace(multiplier=self.rule.initial, control=control)
        )

    def start_memory(self, batch: tuple[int, ...]) -> Memory | None:
        """Return what the policy remembers at an episode's start; the cost critic has no memory."""
        return self.proximal.start_memory(batch)

    def step_policy(self, state: AgentState, observed: Observed) -> tuple[Memory | None, PolicyOutputs]:
        """Apply the actor to raw observations."""
        return self.proximal.step_policy(state, observed)

    def learn(
        self, state: AgentState, experience: Experience, key: Array, rows: np.ndarray | None = None
    ) -> tuple[AgentState, Metrics]:
        """Move the multiplier, then the policy, then the cost critic; see `ProximalLearner.learn`."""
        outcome, memory = experience.outcome, experience.observed.memory
        constraint, multiplier, finished = self._move_multiplier(state.constraint, outcome)
        records, advantages, after = self.proximal.value_rollout(state, experience)
        finals = self.proximal.normalized(state, outcome.final_features)
        costs = cost_targets(self.critic, constraint.critic, records.features, finals, outcome, self.cost)
        mixed = penalized_advantages(advantages, costs.targets.raw_advantages, multiplier, outcome.valid)
        batch = self.proximal.arrange(records.replace(advantages=mixed), memory, outcome, rows)
        improved, metrics = self.proximal.improve(state, after, batch, key)
        samples = cost_samples(records.features, costs, outcome, rows)
        fit = value_fit(self.proximal, self.cost.value_coef)
        steps = state.optimizer_steps + jnp.arange(fit.applications(samples.returns.shape[0]))
        fitted = fit_critic(
            self.critic,
            constraint.critic,
            constraint.opt_state,
            samples,
            jax.random.fold_in(key, COST_KEY),
            fit,
            self.proximal.rate(state.learning_rate, steps),
        )
        constraint = constraint.replace(critic=fitted.layers, opt_state=fitted.opt_state)
        return improved.replace(constraint=constraint), metrics | {
            "multiplier": multiplier,
            "cost_estimate": known_cost(constraint.tracking),
            "cost_limit": self.cost.limits,
            "finished_episodes": finished.astype(jnp.float32),
            "cost_value_loss": fitted.loss,
            "cost_gradient_norm": fitted.gradient_norm,
        }

    def _move_multiplier(self, constraint: Constraint, outcome: Outcome) -> tuple[Constraint, Array, Array]:
        """Take in the episodes' costs; the multiplier stands still where none has finished.

        Returns:
            The constraint with the new multiplier, that multiplier, and how many episodes finished.
        """
        tracking, finished = track_costs(constraint.tracking, outcome, self.cost.budget_gamma)
        cost, limit, fresh, rule = tracking.last_return, self.cost.limits, finished > 0, self.rule
        assert constraint.multiplier is not None, "init gives every agent a multiplier"
        control, bounds = constraint.control, (rule.minimum, rule.maximum, fresh)
        if control is None:
            multiplier = update_multiplier(constraint.multiplier, cost, limit, rule.integral, *bounds)
        else:
            gains = (rule.proportional, rule.integral, rule.derivative)
            control = control.update(cost, limit, *gains, *bounds)
            multiplier = control.multiplier
        after = constraint.replace(tracking=tracking, multiplier=multiplier, control=control)
        return after, multiplier, finished
