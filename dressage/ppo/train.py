"""`train`: the whole of PPO training as one pure function."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dressage.envs.functional import BaseEnv
from dressage.learning import scan_driver
from dressage.learning.metrics import ChunkSums
from dressage.learning.records import LearnerState
from dressage.ppo.arguments import check_arguments, check_key
from dressage.ppo.callbacks import evaluation_callback, update_callback
from dressage.ppo.config import Config
from dressage.ppo.records import Diagnostics
from dressage.ppo.result import PPOResult, RunnerState
from dressage.ppo.session import Session


def train(env: BaseEnv, config: Config, rng: Array) -> PPOResult:
    """Train a policy by proximal policy optimisation.

    A pure function: it can be jitted (with `env` static), and vmapped over `rng` (seeds) and over the float
    fields of `config` (sweeps). Never fewer steps run than asked: `config.NUM_TIMESTEPS` says how many will.

    Args:
        env: A functional environment; it neither counts its steps nor resets itself.
        config: The configuration; checked before anything compiles.
        rng: A JAX random key.

    Returns:
        The result. Each array of its `metrics` has one row an evaluation. A non-finite number from the
        environment freezes the parameters from that rollout on and shows in `metrics["fault/field"]` (0 where
        all is well).

    Raises:
        ConfigError: If the configuration is not legal for this environment, or there is no configuration or
            key in its place.
        EnvironmentContractError: If the environment breaks its contract.
        UnsupportedSpaceError: If its spaces are not supported.

    Reference:
        Schulman et al. 2017, "Proximal Policy Optimization Algorithms". Departures: time limits bootstrap
        from the final observation; advantages are normalised once a rollout; statistics act frozen during a
        rollout.
    """
    check_arguments(env, config, "train", host=False)
    check_key(rng)
    session = Session.of(env, config)
    config = session.config
    state = scan_driver.init(session.env, session.groups, rng)
    after = np.array(config.updates_at_evaluations())
    chunks = jnp.asarray(np.diff(after, prepend=0), jnp.int32)
    steps = _step_counts(after, config)

    def train_and_evaluate(
        state: LearnerState, row: tuple[Array, Array]
    ) -> tuple[LearnerState, dict[str, Any]]:
        state, sums = _advance(session, state, row[0])
        return state, _report(session, state, sums, row[1])

    state, metrics = lax.scan(train_and_evaluate, state, (chunks, steps))
    learner = session.learner
    return PPOResult(
        config, RunnerState.of(state, learner.network), metrics, learner.head.spec, session.env.layout
    )


def _advance(session: Session, state: LearnerState, updates: Array) -> tuple[LearnerState, ChunkSums]:
    """Make the updates up to the next evaluation; with `DEBUG` one at a time, each with its line."""

    def advance(state: LearnerState, updates: Array) -> tuple[LearnerState, ChunkSums]:
        return scan_driver.advance(session.env, session.groups, session.config.NUM_STEPS, state, updates)

    def one_update(
        carry: tuple[LearnerState, ChunkSums], index: Array
    ) -> tuple[tuple[LearnerState, ChunkSums], None]:
        state, sums = advance(carry[0], jnp.int32(index < updates))
        update_callback(session.config, sums.updates, state.updates, diagnostics(sums).named())
        return (state, jax.tree.map(jnp.add, carry[1], sums)), None

    if not session.config.DEBUG:
        return advance(state, updates)
    none = jax.tree.map(jnp.zeros_like, jax.eval_shape(advance, state, updates)[1])
    # JAX refuses ordered callbacks under `vmap` in a loop of unknown length and in a branch, so that shorter
    # chunks make empty steps, of which nothing is printed.
    longest = -(-session.config.NUM_UPDATES // session.config.NUM_EVALS)
    return lax.scan(one_update, (state, none), jnp.arange(longest))[0]


def _report(session: Session, state: LearnerState, sums: ChunkSums, total_steps: Array) -> dict[str, Any]:
    """Evaluate, let the configuration's callbacks have the metrics, and return them."""
    evaluated = session.evaluate(state.agents, state.key)
    transitions = None if evaluated is None else session.transitions(state.agents, *evaluated)
    given = session.config.EVAL_METRICS_JAX_CB(total_steps, diagnostics(sums), transitions)
    fault = {f"fault/{name}": getattr(state.fault, name) for name in ("field", "environment", "step")}
    metrics = {"train/total_steps": total_steps, **given, **fault}
    evaluation_callback(session.config, metrics)
    return metrics


def diagnostics(sums: ChunkSums) -> Diagnostics:
    """Turn a chunk's sums into means, inside the compiled program."""
    means = jax.tree.map(lambda total: total / sums.updates, sums.learning[0])
    episodes = sums.episodes[0]
    return Diagnostics(
        total_loss=means["loss"],
        value_loss=means["value_loss"],
        policy_loss=means["policy_loss"],
        entropy_loss=means["entropy"],
        approxkl=means["approx_kl"],
        clip_fraction=means["clip_fraction"],
        explained_variance=means["explained_variance"],
        gradient_norm=means["gradient_norm"],
        learning_rate=means["learning_rate"],
        skipped_minibatches=means["skipped_minibatches"],
        episode_return=sums.returns[0] / episodes,
        episode_length=sums.lengths[0] / episodes,
        episodes=episodes,
    )


def _step_counts(updates: np.ndarray, config: Config) -> Array:
    """Environment steps after so many updates; float32 where they pass 2**31 - 1, which int32 cannot hold."""
    steps = updates.astype(np.int64) * config.NUM_ENVS * config.NUM_STEPS
    fits = steps[-1] <= np.iinfo(np.int32).max
    return jnp.asarray(steps, jnp.int32 if fits else jnp.float32)
