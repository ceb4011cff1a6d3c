"""A predictor of failures: how likely a step is to be followed, soon, by a positive cost.

A small network is fitted after each rollout to what followed its steps, and then says of each of them what it
expects: a cost that comes before the failure itself, and that a policy can learn to avoid earlier.
"""

from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
from flax import struct
from jax import Array, lax

from dressage.equations.cost_shaping import failure_labels
from dressage.learning.flat_parameters import OPTIMIZER, ravel_parameters, step_adam
from dressage.learning.records import Outcome
from dressage.learning.specs import AgentSpec
from dressage.networks import MLP

PREDICTOR_KEY = 0x66_61_69_6C  # Folded into keys, so that the predictor takes no number from other streams.
SMALLEST = 1e-6  # Probabilities are kept so far from 0 and 1 in the loss, whose logarithm stays finite.


class Shaping(struct.PyTreeNode):
    """How costs are shaped.

    Attributes:
        coef: Weight of the predicted probability beside the cost, > 0.
        learning_rate: Adam's step size, > 0.
        horizon: Steps that a prediction looks ahead.
        steps: Adam steps a rollout, each over all of it.
        hidden_size: Units of the hidden layer.
    """

    coef: Array
    learning_rate: Array
    horizon: int = struct.field(pytree_node=False, default=20)
    steps: int = struct.field(pytree_node=False, default=25)
    hidden_size: int = struct.field(pytree_node=False, default=32)

    @property
    def network(self) -> MLP:
        """The predictor: one logit."""
        return MLP((self.hidden_size,), 1)


class Prediction(NamedTuple):
    """What the predictor makes of a rollout.

    Attributes:
        predictor: Its parameters after the fit.
        opt_state: Adam's state.
        probabilities: `[T, B]` of a failure within the horizon.
        loss: `[]` cross-entropy before the last step, nats.
        label_rate: `[]` share of known labels that say failure.
    """

    predictor: Any
    opt_state: Any
    probabilities: Array
    loss: Array
    label_rate: Array


def start_predictor(shaping: Shaping, key: Array, spec: AgentSpec) -> tuple[Any, Any]:
    """Draw the predictor's parameters; returns them and Adam's state."""
    width = 2 * spec.obs_dim + sum(spec.action_nvec) + spec.continuous_dim
    params = shaping.network.init(jax.random.fold_in(key, PREDICTOR_KEY), jnp.zeros((1, width)))
    return params, OPTIMIZER.init(params)


def predict_failures(
    shaping: Shaping,
    predictor: Any,  # noqa: ANN401 (Flax's own tree)
    opt_state: Any,  # noqa: ANN401
    inputs: Array,
    costs: Array,
    outcome: Outcome,
) -> Prediction:
    """Fit the predictor to a rollout, and ask the fitted one about it.

    Args:
        shaping: How.
        predictor: Its parameters.
        opt_state: Adam's state.
        inputs: `[T, B, width]`, see `predictor_inputs`.
        costs: `[T, B]` raw costs.
        outcome: The rollout's ends, and which of its rows are samples.
    """
    valid = jnp.ones(costs.shape, bool) if outcome.valid is None else outcome.valid
    labels, known = failure_labels(jnp.where(valid, costs, 0.0), outcome.episode_ends, shaping.horizon)
    counted = known & valid
    flat, unravel = ravel_parameters(predictor)

    def loss(flat: Array) -> Array:
        probabilities = jnp.clip(_probabilities(shaping, unravel(flat), inputs), SMALLEST, 1 - SMALLEST)
        losses = -jnp.where(labels > 0, jnp.log(probabilities), jnp.log1p(-probabilities))
        return _mean(losses, counted)

    def step(carry: tuple[Array, Any], _: None) -> tuple[tuple[Array, Any], Array]:
        value, gradient = jax.value_and_grad(loss)(carry[0])
        sound = jnp.isfinite(value) & jnp.isfinite(gradient).all()
        direction, opt_state = step_adam(gradient, carry[1], sound)
        return (jnp.where(sound, carry[0] - shaping.learning_rate * direction, carry[0]), opt_state), value

    (flat, opt_state), losses = lax.scan(step, (flat, opt_state), length=shaping.steps)
    fitted = unravel(flat)
    probabilities = jnp.where(valid, _probabilities(shaping, fitted, inputs), 0.0)
    return Prediction(fitted, opt_state, probabilities, losses[-1], _mean(labels, counted))


def predictor_inputs(spec: AgentSpec, features: Array, actions: Any, final_features: Array) -> Array:  # noqa: ANN401
    """Lay side by side what was seen, done and brought about.

    Args:
        spec: The agent's spaces.
        features: `[T, B, obs_dim]` of what was acted on.
        actions: Policy actions `[T, B, ...]`: indices, raw numbers, or both.
        final_features: `[T, B, obs_dim]` of what the step really led to.

    Returns:
        `[T, B, width]`: observation, one-hot of each choice, raw numbers, next observation.
    """
    choices, numbers = actions if isinstance(actions, tuple) else (actions, actions)
    parts = [features]
    if spec.action_nvec:
        indices = choices if choices.ndim == features.ndim else choices[..., None]
        parts += [jax.nn.one_hot(indices[..., i], size) for i, size in enumerate(spec.action_nvec)]
    if spec.continuous_dim:
        parts.append(numbers)
    return jnp.concatenate([*parts, final_features], axis=-1)


def _probabilities(shaping: Shaping, predictor: Any, inputs: Array) -> Array:  # noqa: ANN401
    rows = inputs.reshape(-1, inputs.shape[-1])
    logits = cast("Array", shaping.network.apply(predictor, rows))
    return jax.nn.sigmoid(logits[:, 0]).reshape(inputs.shape[:-1])


def _mean(values: Array, counted: Array) -> Array:
    return jnp.where(counted, values, 0.0).sum() / jnp.maximum(counted.sum(), 1)
