"""One update of a proximal actor-critic, written straight down: dictionaries, loops and stock optax.

Nothing is packed, padded, flattened or laid out in columns; targets are sums by definition in float64; only
the gradient of a single sample is taken by JAX, and a minibatch's is their mean.
"""

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tests.oracles.plain_returns import gae_by_definition
from tests.oracles.plain_rollouts import RewardScaler, normalized


@dataclass
class Settings:
    """What the update is made with; `nvec` and `continuous` say how the head's outputs are read."""

    nvec: tuple[int, ...] = ()
    continuous: int = 0
    learning_rate: float = 1e-2
    gamma: float = 0.9
    gae_lambda: float = 0.8
    clip_eps: float = 0.2
    entropy_coef: float = 0.01
    value_coef: float = 0.5
    max_grad_norm: float = 0.5
    clip_value_loss: bool = True
    anneal_over: int | None = None


@dataclass
class PlainProximal:
    """Parameters are `{"actor": [(W, b), ...], "critic": [...], "log_std": [d] or None}`."""

    settings: Settings
    params: dict
    observation_rows: list | None = None
    reward_scaler: RewardScaler | None = None
    losses: list = field(default_factory=list)

    def __post_init__(self):
        s = self.settings
        rate = s.learning_rate
        if s.anneal_over is not None:
            rate = optax.linear_schedule(s.learning_rate, 0.0, s.anneal_over)
        self.optimizer = optax.chain(optax.clip_by_global_norm(s.max_grad_norm), optax.adam(rate, eps=1e-5))
        self.opt_state = self.optimizer.init(self.params)
        self.optimizer = optax.GradientTransformation(self.optimizer.init, jax.jit(self.optimizer.update))
        self.gradient = jax.jit(jax.value_and_grad(self.loss))

    def normalize(self, features):
        if not self.observation_rows:
            return np.asarray(features, np.float64)
        rows = np.concatenate(self.observation_rows).astype(np.float64)
        return np.clip((features - rows.mean(0)) / np.sqrt(rows.var(0) + 1e-8), -10, 10)

    def update(self, rollout, indices, weights):
        """Learn from one rollout: arrays `[T, B, ...]` by name; minibatches are rows of indices."""
        s, valid = self.settings, rollout.get("valid")
        features, final = self.normalize(rollout["features"]), self.normalize(rollout["final_features"])
        values = np.asarray(forward(self.params["critic"], features)[..., 0])
        next_values = np.asarray(forward(self.params["critic"], final)[..., 0])
        rewards = rollout["rewards"]
        if self.reward_scaler is not None:
            rewards = self.reward_scaler.scale(rewards, rollout["ends"], valid)
        masks = rollout["terminated"], rollout["ends"]
        if valid is not None:
            masks = masks[0] | ~valid, masks[1] | ~valid
        advantages, returns = gae_by_definition(rewards, *masks, values, next_values, s.gamma, s.gae_lambda)
        rows = {
            "features": features,
            "actions": rollout["actions"],
            "old_log_probs": np.asarray(self.policy(self.params, features, rollout["actions"])[0]),
            "advantages": normalized(advantages, valid),
            "returns": returns,
            "values": values,
        }
        if self.observation_rows is not None:
            seen = rollout["features"].reshape(-1, features.shape[-1])
            self.observation_rows.append(seen if valid is None else seen[valid.ravel()])
        flat = {name: np.asarray(a).reshape(values.size, *np.shape(a)[2:]) for name, a in rows.items()}
        for chosen, weight in zip(np.asarray(indices), np.asarray(weights), strict=True):
            kept = [
                i
                for i, w in zip(chosen, weight, strict=True)
                if w > 0 and (valid is None or valid.ravel()[i])
            ]
            self.step({name: a[kept] for name, a in flat.items()})

    def step(self, minibatch):
        """Apply the optimiser once to the mean of all samples' gradients."""
        count = len(minibatch["values"])
        samples = [{name: _single(a[i]) for name, a in minibatch.items()} for i in range(count)]
        pairs = [self.gradient(self.params, sample) for sample in samples]
        mean_gradient = jax.tree.map(lambda *parts: sum(parts) / count, *(gradient for _, gradient in pairs))
        updates, self.opt_state = self.optimizer.update(mean_gradient, self.opt_state, self.params)
        self.params = optax.apply_updates(self.params, updates)
        self.losses.append(float(np.mean([loss for loss, _ in pairs])))

    def policy(self, params, features, actions):
        """Log-probabilities and entropies, summed over components."""
        s = self.settings
        outputs = forward(params["actor"], features)
        if s.continuous:
            mean = outputs[..., : s.continuous]
            log_std = outputs[..., s.continuous :] if params["log_std"] is None else params["log_std"]
            z = (actions - mean) / jnp.exp(log_std)
            log_probs = (-0.5 * z**2 - log_std - 0.5 * np.log(2 * np.pi)).sum(-1)
            entropy = (log_std + 0.5 * np.log(2 * np.pi * np.e) + 0.0 * mean).sum(-1)
            return log_probs, entropy
        log_probs, entropy = 0.0, 0.0
        ends = np.cumsum(s.nvec)
        for component, (end, size) in enumerate(zip(ends, s.nvec, strict=True)):
            logits = outputs[..., end - size : end]
            table = logits - jax.scipy.special.logsumexp(logits, axis=-1, keepdims=True)
            index = actions if actions.ndim < outputs.ndim else actions[..., component]
            log_probs += jnp.take_along_axis(table, index[..., None], -1)[..., 0]
            entropy -= (jnp.exp(table) * table).sum(-1)
        return log_probs, entropy

    def loss(self, params, batch):
        """The loss of one sample, or the mean over several."""
        s = self.settings
        log_probs, entropy = self.policy(params, batch["features"], batch["actions"])
        ratio = jnp.exp(log_probs - batch["old_log_probs"])
        clipped = jnp.clip(ratio, 1 - s.clip_eps, 1 + s.clip_eps)
        surrogate = jnp.minimum(ratio * batch["advantages"], clipped * batch["advantages"]).mean()
        values = forward(params["critic"], batch["features"])[..., 0]
        errors = (values - batch["returns"]) ** 2
        if s.clip_value_loss:
            near = batch["values"] + jnp.clip(values - batch["values"], -s.clip_eps, s.clip_eps)
            errors = jnp.maximum(errors, (near - batch["returns"]) ** 2)
        return -surrogate + s.value_coef * 0.5 * errors.mean() - s.entropy_coef * entropy.mean()


def forward(layers, inputs):
    """A perceptron with tanh between its layers, samples in rows."""
    values = inputs
    for kernel, bias in layers[:-1]:
        values = jnp.tanh(values @ kernel + bias)
    kernel, bias = layers[-1]
    return values @ kernel + bias


def _single(value):
    return np.asarray(value) if np.issubdtype(value.dtype, np.integer) else np.asarray(value, np.float32)
