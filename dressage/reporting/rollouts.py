"""Owns running a finished policy: evaluation episodes on many copies at once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dressage.envs import BaseEnv, HostTask, HostVectorEnv, VectorEnv
from dressage.envs.registry import SingleAgentTask
from dressage.ppo import Policy

UNLIMITED_STEPS = 10_000
"""Where an evaluation stops waiting for episodes of a task without a time limit, in steps."""


@dataclass(frozen=True)
class Episodes:
    """Evaluation episodes, one a copy.

    Attributes:
        returns: Undiscounted, `[E]` float64; meaningful where finished.
        lengths: In steps, `[E]`.
        finished: Whether the episode ended within the time allowed, `[E]` bool.
        by_agent: Returns of each of several agents, `[E]` each; empty for one agent.
    """

    returns: np.ndarray  # [E]
    lengths: np.ndarray  # [E]
    finished: np.ndarray  # [E]
    by_agent: Mapping[str, np.ndarray] = field(default_factory=dict)


class _Playing(NamedTuple):
    environment: Any
    observation: Any  # [E, ...]
    key: Array
    step: Array  # []
    returns: Array  # [E]
    lengths: Array  # [E]
    finished: Array  # [E]


def play_episodes(
    task: SingleAgentTask, policy: Policy, episodes: int, seed: int, *, stochastic: bool
) -> Episodes:
    """Play one episode in each of several copies, all at once.

    Args:
        task: The environment.
        policy: Acts.
        episodes: Number of copies and episodes, at least 1.
        seed: Draws the initial states, and the actions of a stochastic policy.
        stochastic: Sample the actions instead of taking the most likely ones.
    """
    if isinstance(task, BaseEnv):
        return _play_compiled(VectorEnv(task, episodes), policy, seed, stochastic=stochastic)
    return _play_on_host(task, policy, episodes, seed, stochastic=stochastic)


def _play_compiled(env: VectorEnv, policy: Policy, seed: int, *, stochastic: bool) -> Episodes:
    @jax.jit
    def play(policy: Policy, key: Array) -> _Playing:
        start_key, key = jax.random.split(key)
        state, observation = env.reset(start_key)
        zeros = jnp.zeros(env.num_envs)
        start = _Playing(state, observation, key, jnp.int32(0), zeros, zeros, zeros > 0)
        return lax.while_loop(
            lambda playing: (playing.step < env.max_steps) & ~playing.finished.all(),
            lambda playing: _play_step(env, policy, playing, stochastic=stochastic),
            start,
        )

    done = play(policy, jax.random.key(seed))
    return Episodes(np.asarray(done.returns, np.float64), np.asarray(done.lengths), np.asarray(done.finished))


def _play_step(env: VectorEnv, policy: Policy, playing: _Playing, *, stochastic: bool) -> _Playing:
    key, action_key = jax.random.split(playing.key)
    action = policy.get_action(playing.observation, action_key if stochastic else None)
    state, step = env.step(playing.environment, action)
    first = step.ended & ~playing.finished
    return _Playing(
        environment=state,
        observation=step.observation,
        key=key,
        step=playing.step + 1,
        returns=jnp.where(first, step.episode_return, playing.returns),
        lengths=jnp.where(first, step.episode_length, playing.lengths),
        finished=playing.finished | step.ended,
    )


def _play_on_host(task: HostTask, policy: Policy, episodes: int, seed: int, *, stochastic: bool) -> Episodes:
    env = task.make(episodes, seed)
    try:
        return first_episodes(env, HostActor(policy, seed, stochastic=stochastic), task.max_steps, seed)
    finally:
        env.close()


def first_episodes(env: HostVectorEnv, actor: "HostActor", max_steps: int | None, seed: int) -> Episodes:
    """Play the first episode of every copy.

    Args:
        env: The copies.
        actor: Acts.
        max_steps: Where to stop; None for `UNLIMITED_STEPS`.
        seed: Draws the initial states.
    """
    returns, lengths = np.zeros(env.num_envs), np.zeros(env.num_envs, np.int64)
    finished = np.zeros(env.num_envs, bool)
    observation = env.reset(seed)
    for _ in range(max_steps or UNLIMITED_STEPS):
        step = env.step(actor.act(observation))
        observation = step.observation
        first = (step.terminated | step.truncated) & step.valid & ~finished
        returns = np.where(first, step.episode_return, returns)
        lengths = np.where(first, step.episode_length, lengths)
        finished = finished | first
        if finished.all():
            break
    return Episodes(returns, lengths, finished)


class HostActor:
    """Acts on host observations with one compiled call a step."""

    def __init__(self, policy: Policy, seed: int, *, stochastic: bool) -> None:
        self._get_action = jax.jit(policy.get_action)
        self._key = jax.random.key(seed)
        self._stochastic = stochastic

    def act(self, observation: np.ndarray) -> np.ndarray:
        """Choose actions for `[E, ...]` observations, or for one."""
        self._key, key = jax.random.split(self._key)
        return np.asarray(self._get_action(observation, key if self._stochastic else None))
