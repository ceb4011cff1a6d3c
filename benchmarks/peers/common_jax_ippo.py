"""A stand-in for the common single-file IPPO in JAX over JaxMARL's environments, written for this benchmark.

JaxMARL's package has its environments but not its training programs. This one was written from a description
of them and shares their structure and so their cost: one network for all agents, whose observations are
stacked to rows of one batch, JaxMARL's own automatic reset in every step, actor and critic both within the
environment scan, keys split in every step, `jax.random.permutation` once an epoch, and optax's chain of
clipping and Adam over a tree of parameters. Losses and networks are those of `common_jax_ppo`.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxmarl
import optax
from common_jax_ppo import (
    LEARNING_RATE,
    MAX_GRAD_NORM,
    ActorCritic,
    Runner,
    Sizes,
    Transition,
    learn,
    log_prob_of,
)
from flax.training.train_state import TrainState
from jax import Array, lax


class Agents(NamedTuple):
    """An environment and its agents in a fixed order."""

    env: Any
    names: tuple[str, ...]


def train(task: str, sizes: Sizes, key: Array) -> tuple[Runner, Array]:
    """Train; returns the last runner and every step's most recent episode returns `[updates, T, A * B]`."""
    with jax.ensure_compile_time_eval():  # Its constructor asks whether numbers are positive.
        env = jaxmarl.make(task)
    agents = Agents(env, tuple(env.agents))
    rows = sizes.envs * len(agents.names)
    network = ActorCritic(env.action_space(agents.names[0]).n, sizes.hidden)
    key, init_key, reset_key = jax.random.split(key, 3)
    observations, env_state = jax.vmap(env.reset)(jax.random.split(reset_key, sizes.envs))
    schedule = optax.linear_schedule(LEARNING_RATE, 0.0, sizes.updates * sizes.epochs * sizes.minibatches)
    optimizer = optax.chain(optax.clip_by_global_norm(MAX_GRAD_NORM), optax.adam(schedule, eps=1e-5))
    stacked = stack(agents, observations)
    train_state = TrainState.create(
        apply_fn=network.apply, params=network.init(init_key, stacked[0]), tx=optimizer
    )
    zeros = jnp.zeros(rows)
    runner = Runner(train_state, env_state, stacked, zeros, zeros, key)

    def one_update(runner: Runner, _: None) -> tuple[Runner, Array]:
        runner, rollout = lax.scan(lambda carry, _: env_step(agents, carry), runner, None, sizes.steps)
        return learn(sizes._replace(envs=rows), runner, rollout), rollout.episode_return

    return lax.scan(one_update, runner, None, sizes.updates)


def env_step(agents: Agents, runner: Runner) -> tuple[Runner, Transition]:
    """Let all agents act and step every environment once."""
    key, act_key, step_key = jax.random.split(runner.key, 3)
    logits, value = runner.train_state.apply_fn(runner.train_state.params, runner.observation)
    action = jax.random.categorical(act_key, logits)
    copies = action.shape[0] // len(agents.names)
    by_agent = dict(zip(agents.names, action.reshape(len(agents.names), copies), strict=True))
    observations, env_state, rewards, dones, _ = jax.vmap(agents.env.step)(
        jax.random.split(step_key, copies), runner.env_state, by_agent
    )
    reward, done = stack(agents, rewards), stack(agents, dones)
    total = runner.running_return + reward
    last = jnp.where(done, total, runner.last_return)
    transition = Transition(
        done, action, value, reward, log_prob_of(logits, action), runner.observation, last
    )
    following = stack(agents, observations), jnp.where(done, 0.0, total), last, key
    return Runner(runner.train_state, env_state, *following), transition


def stack(agents: Agents, by_agent: dict[str, Array]) -> Array:
    """Lay the agents' arrays `[B, ...]` one behind the other: `[A * B, ...]`."""
    stacked = jnp.stack([by_agent[name] for name in agents.names])
    return stacked.reshape(-1, *stacked.shape[2:])
