"""The proximal actor-critic learner: act, targets and the clipped update of one agent.

This is the update of PPO (Schulman et al. 2017) and of each agent of IPPO (de Witt et al. 2020). It is
written for one agent over `[T, B]` records; `learning.groups` maps it over the agents of a group.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array, lax

from dressage.equations.schedules import adapt_learning_rate, linear_decay
from dressage.equations.statistics import RunningMoments
from dressage.equations.surrogate import approx_kl, clipped_surrogate, clipped_value_loss
from dressage.learning.batches import (
    Batch,
    any_sample,
    blank_invalid,
    explained_variance,
    flat_samples,
    mean,
    sample_weights,
    share_of_part,
)
from dressage.learning.flat_parameters import OPTIMIZER, ravel_parameters, step_adam
from dressage.learning.forward import (
    Network,
    critic_inputs,
    critic_of,
    evaluate_batch,
    final_inputs,
    init_network,
    start_memory,
    step_policy,
)
from dressage.learning.minibatches import Packing, average_over_parts, count_parts, minibatch_indices
from dressage.learning.policy_head import PolicyHead
from dressage.learning.records import AgentState, Experience, Observed, Outcome
from dressage.learning.sequences import Sequences
from dressage.learning.targets import advantage_targets, scale_rewards
from dressage.learning.values import following_values, rollout_values
from dressage.networks import Memory, PolicyOutputs

OBSERVATION_CLIP = 10.0


Metrics = dict[str, Array]
METRIC_NAMES = (
    "loss",
    "policy_loss",
    "value_loss",
    "entropy",
    "approx_kl",
    "clip_fraction",
    "gradient_norm",
    "skipped_minibatches",
    "explained_variance",
    "learning_rate",
)


class Hyperparameters(struct.PyTreeNode):
    """The traced numbers of the learner; all float32 scalars.

    Attributes:
        learning_rate: Adam's step size, > 0.
        gamma: Discount a step, in [0, 1].
        gae_lambda: Trace decay of GAE, in [0, 1].
        clip_eps: Half width of the surrogate's trust interval, > 0.
        entropy_coef: Weight of the entropy bonus, >= 0.
        value_coef: Weight of the value loss, >= 0.
        max_grad_norm: Norm to which gradients are clipped, > 0.
        target_kl: Divergence in nats of a minibatch beyond which the rest of the update is left out; None
            never stops.
        adaptive_kl: Divergence in nats that the learning rate is steered to; None leaves the rate alone.
    """

    learning_rate: Array
    gamma: Array
    gae_lambda: Array
    clip_eps: Array
    entropy_coef: Array
    value_coef: Array
    max_grad_norm: Array
    target_kl: Array | None = None
    adaptive_kl: Array | None = None


class Optimisation(NamedTuple):
    """What the minibatch loop carries.

    Attributes:
        params: `[P]`, the flat vector of all parameters.
        opt_state: Adam's state.
        steps: `[]` int32, scheduled applications so far.
        halted: `[]` bool, whether the target divergence was passed; None without one.
    """

    params: Array
    opt_state: Any
    steps: Array
    halted: Array | None = None


class ProximalLearner(struct.PyTreeNode):
    """The clipped-surrogate actor-critic of one agent.

    Attributes:
        hyper: The traced hyper-parameters.
        head: How outputs become distributions and actions.
        network: The actor-critic module.
        epochs: Passes over each rollout.
        minibatches: Requested parts a pass.
        total_optimizer_steps: Applications of the whole run, where the annealed learning rate ends.
        anneal: Whether the learning rate decays linearly to 0 over `total_optimizer_steps`.
        normalize_observations: Whether observations are standardised by running statistics.
        normalize_rewards: Whether rewards are divided by the deviation of the discounted return.
        clip_value_loss: Whether the value loss is clipped around the old value.
    """

    hyper: Hyperparameters
    head: PolicyHead = struct.field(pytree_node=False)
    network: Network = struct.field(pytree_node=False)
    epochs: int = struct.field(pytree_node=False)
    minibatches: int = struct.field(pytree_node=False)
    total_optimizer_steps: int | Array  # traced: a longer training then needs no other program
    anneal: bool = struct.field(pytree_node=False, default=False)
    normalize_observations: bool = struct.field(pytree_node=False, default=False)
    normalize_rewards: bool = struct.field(pytree_node=False, default=False)
    clip_value_loss: bool = struct.field(pytree_node=False, default=True)

    @property
    def metric_names(self) -> tuple[str, ...]:
        """What `learn` reports."""
        return METRIC_NAMES

    def for_agent(self, place: Array | int) -> "ProximalLearner":
        """Return the learner of one agent of a group: the same for all."""
        del place
        return self

    def init(self, key: Array, copies: int) -> AgentState:
        """Draw parameters and lay out the state for `copies` environment copies."""
        obs_dim = self.head.spec.obs_dim
        params = init_network(self.network, key, obs_dim)
        return AgentState(
            params=params,
            opt_state=OPTIMIZER.init(params),
            learning_rate=self.hyper.learning_rate,
            optimizer_steps=jnp.int32(0),
            observation_moments=RunningMoments.zeros((obs_dim,)) if self.normalize_observations else None,
            reward_moments=RunningMoments.zeros(()) if self.normalize_rewards else None,
            discounted_returns=jnp.zeros(copies) if self.normalize_rewards else None,
        )

    def normalized(self, state: AgentState, features: Array) -> Array:
        """Standardise raw observations `[..., obs_dim]` by the statistics as they stand."""
        if state.observation_moments is None:
            return features
        return state.observation_moments.normalize(features, OBSERVATION_CLIP)

    def start_memory(self, batch: tuple[int, ...]) -> Memory | None:
        """Return what the network remembers at an episode's start, `[*batch, units]`; None without memory."""
        return start_memory(self.network, batch)

    def step_policy(self, state: AgentState, observed: Observed) -> tuple[Memory | None, PolicyOutputs]:
        """Apply the actor to raw observations; returns the memory after them and the actor's outputs."""
        features = self.normalized(state, observed.features)
        return step_policy(self.network, state.params, features, observed.memory)

    def learn(
        self, state: AgentState, experience: Experience, key: Array, rows: np.ndarray | None = None
    ) -> tuple[AgentState, Metrics]:
        """Update parameters and statistics from one rollout.

        Args:
            state: The agent before.
            experience: `[T, B]` records.
            key: The random key of the shuffles.
            rows: `[samples]` which of the `T * B` rows are samples at all; None for all of them.

        Returns:
            The agent after, and the update's metrics (scalars, means over the minibatches).
        """
        batch, after = self.prepare(state, experience, rows)
        return self.improve(state, after, batch, key)

    def prepare(
        self, state: AgentState, experience: Experience, rows: np.ndarray | None = None
    ) -> tuple[Batch, AgentState]:
        """Turn a rollout into samples with targets, and move the normalisers on.

        Returns:
            The batch, `[N, ...]`, and the state with statistics that include the rollout.
        """
        batch, _, after = self.value_rollout(state, experience)
        return self.arrange(batch, experience.observed.memory, experience.outcome, rows), after

    def value_rollout(self, state: AgentState, experience: Experience) -> tuple[Batch, Array, AgentState]:
        """Give a rollout's records their targets, and move the normalisers on.

        Returns:
            The batch as `[T, B, ...]` records, its advantages before normalisation `[T, B]`, and the state
            with statistics that include the rollout.
        """
        observed, outcome = experience.observed, experience.outcome
        features, memory = self.normalized(state, observed.features), observed.memory
        finals = self.normalized(state, outcome.final_features)
        critic = critic_of(self.network, state.params)
        values = rollout_values(critic, critic_inputs(features, memory))
        behind = final_inputs(self.network, state.params, features, memory, finals)
        next_values = following_values(critic, values, behind, outcome)
        rewards, after = self._move_normalizers(state, experience)
        targets = advantage_targets(
            rewards,
            outcome.terminated,
            outcome.episode_ends,
            values,
            next_values,
            outcome.valid,
            self.hyper.gamma,
            self.hyper.gae_lambda,
        )
        distribution = self.head.distribution(experience.policy_outputs, observed.action_mask)
        batch = Batch(
            features=features,
            action_mask=observed.action_mask,
            actions=experience.actions,
            log_probs=distribution.log_prob(experience.actions),
            advantages=targets.advantages,
            returns=targets.returns,
            values=values,
            valid=outcome.valid,
        )
        return batch, targets.raw_advantages, after

    def arrange(
        self, batch: Batch, memory: Memory | None, outcome: Outcome, rows: np.ndarray | None
    ) -> Batch:
        """Lay records `[T, B, ...]` out as samples `[N, ...]`, or as sequences `[S, L, ...]`."""
        steps, copies = batch.values.shape
        if memory is None:
            flat = jax.tree.map(lambda leaf: leaf.reshape(steps * copies, *leaf.shape[2:]), batch)
            chosen = flat if rows is None else jax.tree.map(lambda leaf: leaf[rows], flat)
            return blank_invalid(chosen)
        sequences = Sequences.of(steps, copies, self.minibatches, rows)
        valid = jnp.ones((steps, copies), bool) if batch.valid is None else batch.valid
        restarts = sequences.restarts(outcome.episode_ends, outcome.valid)
        arranged: Batch = sequences.arrange(batch.replace(valid=valid))
        return blank_invalid(arranged).replace(memory=sequences.first(memory), restarts=restarts)

    def improve(
        self, state: AgentState, after: AgentState, batch: Batch, key: Array
    ) -> tuple[AgentState, Metrics]:
        """Run the epochs over a batch.

        Args:
            state: The agent that acted.
            after: The same with its statistics moved on.
            batch: Samples with targets.
            key: The random key of the shuffles.
        """
        optimisation, metrics = self._optimise(state, batch, key)
        _, unravel = ravel_parameters(state.params)
        metrics["explained_variance"] = explained_variance(batch)
        metrics["learning_rate"] = self.rate(state.learning_rate, state.optimizer_steps)
        rate = state.learning_rate
        if self.hyper.adaptive_kl is not None:
            rate = adapt_learning_rate(rate, metrics["approx_kl"], self.hyper.adaptive_kl)
        improved = after.replace(
            params=unravel(optimisation.params),
            opt_state=optimisation.opt_state,
            optimizer_steps=optimisation.steps,
            learning_rate=rate,
        )
        return improved, metrics

    def _move_normalizers(self, state: AgentState, experience: Experience) -> tuple[Array, AgentState]:
        """Return the rewards to learn from and the state with statistics that include this rollout.

        Observations of this rollout are standardised by the statistics that acted, so that old and new
        log-probabilities are of one policy; the new statistics act from the next rollout on.
        """
        outcome = experience.outcome
        rewards, valid = outcome.rewards, outcome.valid
        if state.observation_moments is not None:
            rows = experience.observed.features.reshape(-1, self.head.spec.obs_dim)
            moments = state.observation_moments.update(rows, None if valid is None else valid.ravel())
            state = state.replace(observation_moments=moments)
        if state.reward_moments is not None and state.discounted_returns is not None:
            rewards, moments, running = scale_rewards(
                rewards,
                outcome.episode_ends,
                valid,
                state.reward_moments,
                state.discounted_returns,
                self.hyper.gamma,
            )
            state = state.replace(reward_moments=moments, discounted_returns=running)
        return rewards, state

    def _optimise(self, state: AgentState, batch: Batch, key: Array) -> tuple[Optimisation, Metrics]:
        """Run all epochs of minibatches over a flat parameter vector."""
        packing = Packing.of(batch)
        packed = packing.pack(batch)
        indices, weights = minibatch_indices(key, packed.shape[0], self.epochs, self.minibatches)
        flat, unravel = ravel_parameters(state.params)
        halted = None if self.hyper.target_kl is None else jnp.bool_(False)
        start = Optimisation(flat, state.opt_state, state.optimizer_steps, halted)
        parts = count_parts(indices.shape[1], 1 if batch.memory is None else batch.values.shape[1])

        def apply_minibatch(
            carry: Optimisation, row: tuple[Array, Array | None]
        ) -> tuple[Optimisation, Metrics]:
            occupied = any_sample(batch.valid, row)
            share = share_of_part(batch.valid, row, parts)
            slope = partial(self._gradient, packing, packed, unravel, carry.params, share)
            gradient, metrics = average_over_parts(slope, row, parts)
            return self._apply_gradient(carry, gradient, state.learning_rate, metrics, occupied)

        end, metrics = lax.scan(apply_minibatch, start, (indices, weights))
        occupied = metrics.pop("occupied", None)
        return end, jax.tree.map(lambda leaf: mean(leaf, occupied), metrics)

    def _gradient(
        self,
        packing: Packing,
        packed: Array,
        unravel: Callable[[Array], Any],
        params: Array,
        share: Array | None,
        row: tuple[Array, Array | None],
    ) -> tuple[Array, Metrics]:
        """Return the gradient of the loss over the rows of `packed` that `row` names, and its parts."""
        part: Batch = packing.fetch(packed, row[0])
        weight = sample_weights(part.valid, row[1])
        losses = jax.grad(lambda flat: self._loss(unravel(flat), part, weight, share), has_aux=True)
        found: tuple[Array, Metrics] = losses(params)
        return found

    def _loss(
        self,
        params: Any,  # noqa: ANN401
        batch: Batch,
        weight: Array | None,
        count: Array | None,
    ) -> tuple[Array, Metrics]:
        """The PPO objective (Schulman et al. 2017, eq. 9), to be minimised, and its parts.

        Means are over the samples; where `count` is given, sums of them divided by it.
        """
        outputs, values = evaluate_batch(self.network, params, batch.features, batch.memory, batch.restarts)
        if batch.memory is not None:
            batch = flat_samples(batch)
        log_probs, entropies = self._log_probs_and_entropies(outputs, batch)
        clip_eps = self.hyper.clip_eps
        if self.clip_value_loss:
            value_losses = clipped_value_loss(values, batch.values, batch.returns, clip_eps)
        else:
            value_losses = 0.5 * (values - batch.returns) ** 2
        objectives = clipped_surrogate(log_probs, batch.log_probs, batch.advantages, clip_eps)
        drift = lax.stop_gradient(log_probs) - batch.log_probs
        left_interval = (jnp.abs(jnp.exp(drift) - 1) > clip_eps).astype(jnp.float32)
        # One mean over all: at a hundred samples a minibatch a reduction costs more to start than to do.
        terms = jnp.stack([objectives, value_losses, entropies, approx_kl(drift, 0.0), left_interval])
        objective, value_loss, entropy, kl, clip_fraction = mean(terms, weight, axis=-1, count=count)
        policy_loss = -objective
        total = policy_loss + self.hyper.value_coef * value_loss - self.hyper.entropy_coef * entropy
        return total, {
            "loss": total,
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "entropy": entropy,
            "approx_kl": kl,
            "clip_fraction": clip_fraction,
        }

    def _log_probs_and_entropies(self, outputs: PolicyOutputs, batch: Batch) -> tuple[Array, Array]:
        """Evaluate the policy sample by sample, over columns: as the network leaves them, and fastest so."""

        def evaluate(outputs: PolicyOutputs, mask: Array | None, action: Any) -> tuple[Array, Array]:  # noqa: ANN401
            distribution = self.head.distribution(outputs, mask)
            return distribution.log_prob(action), distribution.entropy()

        values, log_std = outputs
        # The barrier hands the head its gradient in columns too. Spreads stay outside of it: where
        # they are one parameter for all samples, XLA then takes their exponential once.
        columns = (lax.optimization_barrier(values.T), None if log_std is None else log_std.T)
        log_probs, entropies = jax.vmap(evaluate, in_axes=(1, 0, 0))(
            columns, batch.action_mask, batch.actions
        )
        return log_probs, entropies

    def _apply_gradient(
        self,
        carry: Optimisation,
        gradient: Array,
        learning_rate: Array,
        metrics: Metrics,
        occupied: Array | None,
    ) -> tuple[Optimisation, Metrics]:
        """Clip the gradient, step Adam; a loss or gradient that is not finite changes the count alone.

        So does a minibatch that holds no sample, of an agent that was not there: Adam's momentum would move
        the parameters.
        """
        norm = jnp.sqrt(jnp.sum(gradient**2))
        sound = jnp.isfinite(norm) & jnp.isfinite(metrics["loss"])
        clipped = gradient * jnp.minimum(1.0, self.hyper.max_grad_norm / jnp.maximum(norm, 1e-12))
        applied, halted = sound, carry.halted
        if halted is not None and self.hyper.target_kl is not None:
            halted = halted | (metrics["approx_kl"] > self.hyper.target_kl)
            applied = sound & ~halted
        metrics = metrics | {"gradient_norm": norm, "skipped_minibatches": (~applied).astype(jnp.float32)}
        if occupied is not None:
            applied = applied & occupied
            metrics["occupied"] = occupied.astype(jnp.float32)
        direction, opt_state = step_adam(clipped, carry.opt_state, applied)
        stepped = carry.params - self.rate(learning_rate, carry.steps) * direction
        params = jnp.where(applied, stepped, carry.params)
        return Optimisation(params, opt_state, carry.steps + 1, halted), metrics

    def rate(self, learning_rate: Array, steps: Array) -> Array:
        """The learning rate of the application that follows `steps` others."""
        return (
            linear_decay(steps, self.total_optimizer_steps, learning_rate) if self.anneal else learning_rate
        )
