"""A stand-in for the common single-file PPO in JAX: one compiled program, written for this benchmark.

Such programs are published as source files and not as packages, so that none can be installed here. This one
was written from a description of the kind and shares its structure and so its cost: gymnax's CartPole with
the reset that is computed in every step, actor and critic as two tanh networks that both run inside the
environment scan, keys that are split in every step, `jax.random.permutation` once an epoch, advantages by a
scan that is unrolled 16 times, and optax's chain of clipping and Adam over a tree of parameters. It treats
the time limit as a terminal state, as the kind does.
"""

from typing import Any, NamedTuple

import flax.linen as nn
import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState
from jax import Array, lax

LEARNING_RATE = 2.5e-4
GAMMA, GAE_LAMBDA = 0.99, 0.95
CLIP_EPS, ENTROPY_COEF, VALUE_COEF, MAX_GRAD_NORM = 0.2, 0.01, 0.5, 0.5


class Sizes(NamedTuple):
    """What fixes the shapes of the program."""

    envs: int
    steps: int
    minibatches: int
    epochs: int
    updates: int
    hidden: int = 64


class ActorCritic(nn.Module):
    """Two separate tanh networks."""

    actions: int
    hidden: int

    @nn.compact
    def __call__(self, observation: Array) -> tuple[Array, Array]:
        """Return logits `[..., actions]` and values `[...]`."""
        logits = nn.Dense(self.actions, kernel_init=nn.initializers.orthogonal(0.01))(
            self._tower(observation)
        )
        value = nn.Dense(1, kernel_init=nn.initializers.orthogonal(1.0))(self._tower(observation))
        return logits, value[..., 0]

    def _tower(self, features: Array) -> Array:
        for _ in range(2):
            features = nn.tanh(
                nn.Dense(self.hidden, kernel_init=nn.initializers.orthogonal(np.sqrt(2)))(features)
            )
        return features


class Transition(NamedTuple):
    """One step of every environment; `[B, ...]`."""

    done: Array
    action: Array
    value: Array
    reward: Array
    log_prob: Array
    observation: Array
    episode_return: Array


class Runner(NamedTuple):
    """What an update hands to the next."""

    train_state: TrainState
    env_state: Any
    observation: Array
    running_return: Array
    last_return: Array
    key: Array


def train(sizes: Sizes, key: Array) -> tuple[Runner, Array]:
    """Train; returns the last runner and every step's most recent episode return `[updates, T, B]`."""
    env, params = gymnax.make("CartPole-v1")
    network = ActorCritic(env.num_actions, sizes.hidden)
    key, init_key, reset_key = jax.random.split(key, 3)
    observation, env_state = jax.vmap(env.reset, (0, None))(jax.random.split(reset_key, sizes.envs), params)
    schedule = optax.linear_schedule(LEARNING_RATE, 0.0, sizes.updates * sizes.epochs * sizes.minibatches)
    optimizer = optax.chain(optax.clip_by_global_norm(MAX_GRAD_NORM), optax.adam(schedule, eps=1e-5))
    train_state = TrainState.create(
        apply_fn=network.apply, params=network.init(init_key, observation[0]), tx=optimizer
    )
    zeros = jnp.zeros(sizes.envs)
    runner = Runner(train_state, env_state, observation, zeros, zeros, key)

    def one_update(runner: Runner, _: None) -> tuple[Runner, Array]:
        runner, rollout = lax.scan(lambda carry, _: env_step(env, params, carry), runner, None, sizes.steps)
        return learn(sizes, runner, rollout), rollout.episode_return

    return lax.scan(one_update, runner, None, sizes.updates)


def env_step(env: Any, params: Any, runner: Runner) -> tuple[Runner, Transition]:  # noqa: ANN401
    """Act and step every environment once."""
    key, act_key, step_key = jax.random.split(runner.key, 3)
    logits, value = runner.train_state.apply_fn(runner.train_state.params, runner.observation)
    action = jax.random.categorical(act_key, logits)
    step_keys = jax.random.split(step_key, action.shape[0])
    observation, env_state, reward, terminated, truncated, _ = jax.vmap(env.step, (0, 0, 0, None))(
        step_keys, runner.env_state, action, params
    )
    done = terminated | truncated
    total = runner.running_return + reward
    last = jnp.where(done, total, runner.last_return)
    transition = Transition(
        done, action, value, reward, log_prob_of(logits, action), runner.observation, last
    )
    return Runner(
        runner.train_state, env_state, observation, jnp.where(done, 0.0, total), last, key
    ), transition


def learn(sizes: Sizes, runner: Runner, rollout: Transition) -> Runner:
    """Run the epochs of one update."""
    _, last_value = runner.train_state.apply_fn(runner.train_state.params, runner.observation)
    advantages = gae(rollout, last_value)
    batch = (rollout, advantages, advantages + rollout.value)
    samples = sizes.envs * sizes.steps

    def epoch(carry: tuple[TrainState, Array], _: None) -> tuple[tuple[TrainState, Array], Any]:
        train_state, key = carry
        key, shuffle_key = jax.random.split(key)
        order = jax.random.permutation(shuffle_key, samples)
        flat = jax.tree.map(lambda leaf: leaf.reshape(samples, *leaf.shape[2:]), batch)
        shuffled = jax.tree.map(lambda leaf: jnp.take(leaf, order, axis=0), flat)
        parts = jax.tree.map(lambda leaf: leaf.reshape(sizes.minibatches, -1, *leaf.shape[1:]), shuffled)
        train_state, losses = lax.scan(minibatch, train_state, parts)
        return (train_state, key), losses

    (train_state, key), _ = lax.scan(epoch, (runner.train_state, runner.key), None, sizes.epochs)
    return runner._replace(train_state=train_state, key=key)


def gae(rollout: Transition, last_value: Array) -> Array:
    """Generalised advantage estimation; `[T, B]`."""

    def backwards(carry: tuple[Array, Array], row: Transition) -> tuple[tuple[Array, Array], Array]:
        advantage, next_value = carry
        delta = row.reward + GAMMA * next_value * (1 - row.done) - row.value
        advantage = delta + GAMMA * GAE_LAMBDA * (1 - row.done) * advantage
        return (advantage, row.value), advantage

    start = (jnp.zeros_like(last_value), last_value)
    return lax.scan(backwards, start, rollout, reverse=True, unroll=16)[1]


def minibatch(train_state: TrainState, part: tuple[Transition, Array, Array]) -> tuple[TrainState, Any]:
    """Apply one gradient."""
    (total, parts), gradients = jax.value_and_grad(loss, has_aux=True)(
        train_state.params, train_state.apply_fn, *part
    )
    return train_state.apply_gradients(grads=gradients), (total, parts)


def loss(
    params: Any,  # noqa: ANN401
    apply_fn: Any,  # noqa: ANN401
    batch: Transition,
    advantages: Array,
    targets: Array,
) -> tuple[Array, Any]:
    """Clipped surrogate, clipped value loss and entropy bonus."""
    logits, value = apply_fn(params, batch.observation)
    clipped = batch.value + jnp.clip(value - batch.value, -CLIP_EPS, CLIP_EPS)
    value_loss = 0.5 * jnp.maximum((value - targets) ** 2, (clipped - targets) ** 2).mean()
    ratio = jnp.exp(log_prob_of(logits, batch.action) - batch.log_prob)
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    surrogate = jnp.minimum(ratio * advantages, jnp.clip(ratio, 1 - CLIP_EPS, 1 + CLIP_EPS) * advantages)
    log_probs = jax.nn.log_softmax(logits)
    entropy = -(jnp.exp(log_probs) * log_probs).sum(-1).mean()
    policy_loss = -surrogate.mean()
    return policy_loss + VALUE_COEF * value_loss - ENTROPY_COEF * entropy, (policy_loss, value_loss, entropy)


def log_prob_of(logits: Array, action: Array) -> Array:
    """Log-probability of the chosen actions."""
    return jnp.take_along_axis(jax.nn.log_softmax(logits), action[..., None], -1)[..., 0]
