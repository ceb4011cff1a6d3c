"""Owns running a finished policy: evaluation episodes on many copies, and one episode with its pictures."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dressage.envs import BaseEnv, HostTask, HostVectorEnv, VectorEnv, can_render, make, render
from dressage.envs.registry import SingleAgentTask
from dressage.errors import DressageError
from dressage.ppo import Policy
from dressage.reporting.film import shrink, thin_out

UNLIMITED_STEPS = 10_000
"""Where an evaluation stops waiting for episodes of a task without a time limit, in steps."""

MOST_FRAMES = 250
WIDEST_FRAME = 400
"""Pixels of a film's longer side; 250 such frames of few colours make a GIF of about a megabyte."""

FRAMES_PER_SECOND = 30.0
"""Pace of a film whose environment does not tell its time step."""


SDL_SETTINGS = {
    "SDL_VIDEODRIVER": "dummy",
    "SDL_AUDIODRIVER": "dummy",
    "PYGAME_HIDE_SUPPORT_PROMPT": "1",
}


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


@dataclass(frozen=True)
class Pictures:
    """One filmed episode.

    Attributes:
        frames: Each `[H, W, 3]` uint8; empty where the task cannot be drawn.
        frames_per_second: Pace that shows it in real time where the task tells its time step.
        note: What the film shows, or why there is none.
    """

    frames: list[np.ndarray]
    frames_per_second: float
    note: str


@runtime_checkable
class Timed(Protocol):
    """An environment that tells how long a step is."""

    time_step: Any
    """Seconds."""


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


def film_episode(name: str, policy: Policy, seed: int) -> Pictures:
    """Play one episode with the most likely actions and draw it.

    Args:
        name: The task's name; one that cannot be drawn gives no frames and a note that says why.
        policy: Acts.
        seed: Draws the initial state.
    """
    task = make(name)
    if not isinstance(task, BaseEnv):
        return _film_on_host(name, policy, seed)
    if can_render(task):
        return _film_functional(task, policy, seed)
    return Pictures([], FRAMES_PER_SECOND, f"No film: {name} has no render(state) that draws a picture.")


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
        return _first_episodes(env, _HostActor(policy, seed, stochastic=stochastic), task.max_steps, seed)
    finally:
        env.close()


def _first_episodes(env: HostVectorEnv, actor: "_HostActor", max_steps: int | None, seed: int) -> Episodes:
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


class _HostActor:
    """Acts on host observations with one compiled call a step."""

    def __init__(self, policy: Policy, seed: int, *, stochastic: bool) -> None:
        self._get_action = jax.jit(policy.get_action)
        self._key = jax.random.key(seed)
        self._stochastic = stochastic

    def act(self, observation: np.ndarray) -> np.ndarray:
        """Choose actions for `[E, ...]` observations, or for one."""
        self._key, key = jax.random.split(self._key)
        return np.asarray(self._get_action(observation, key if self._stochastic else None))


def _film_functional(task: BaseEnv, policy: Policy, seed: int) -> Pictures:
    reset, step, act = jax.jit(task.reset), jax.jit(task.step), jax.jit(policy.get_action)
    state, observation, _ = reset(jax.random.key(seed))
    states, total, ended = [state], 0.0, False
    while not ended and len(states) <= task.max_steps:
        state, observation, reward, terminated, truncated, _ = step(state, act(observation))
        states.append(state)
        total += float(reward)
        ended = bool(terminated) or bool(truncated)
    pace = 1.0 / float(task.time_step) if isinstance(task, Timed) else FRAMES_PER_SECOND
    kept, stride = thin_out(states, MOST_FRAMES)
    frames = [shrink(render(task, state), WIDEST_FRAME) for state in kept]
    return Pictures(frames, pace / stride, _film_note(len(states) - 1, total))


def _film_on_host(name: str, policy: Policy, seed: int) -> Pictures:
    # Many environments draw with SDL, which looks for a screen and a sound card that a server has not.
    for variable, value in SDL_SETTINGS.items():
        os.environ.setdefault(variable, value)
    try:
        task = make(name, render_mode="rgb_array")
        assert isinstance(task, HostTask), "the same name without pictures is one"
        env = task.make(1, seed)
    except (DressageError, gymnasium.error.Error) as error:
        return Pictures([], FRAMES_PER_SECOND, f"No film: {name} makes no pictures ({error}).")
    try:
        return _film_first_episode(env, _HostActor(policy, seed, stochastic=False), task.max_steps, seed)
    except gymnasium.error.Error as error:
        return Pictures([], FRAMES_PER_SECOND, f"No film: {name} makes no pictures ({error}).")
    finally:
        env.close()


def _film_first_episode(env: HostVectorEnv, actor: _HostActor, max_steps: int | None, seed: int) -> Pictures:
    observation = env.reset(seed)
    frames = [_picture(env)]
    for _ in range(max_steps or UNLIMITED_STEPS):
        step = env.step(actor.act(observation))
        observation = step.observation
        if step.ended[0]:
            # The copy shows the next episode already, so the last picture is that before the last step.
            break
        frames.append(_picture(env))
    kept, stride = thin_out(frames, MOST_FRAMES)
    pace = float((env.env.metadata or {}).get("render_fps", FRAMES_PER_SECOND))
    note = _film_note(int(step.episode_length[0]), float(step.episode_return[0]))
    return Pictures([shrink(frame, WIDEST_FRAME) for frame in kept], pace / stride, note)


def _picture(env: HostVectorEnv) -> np.ndarray:
    drawn = env.env.render()
    if not drawn or drawn[0] is None:
        raise gymnasium.error.Error("render() returned no picture")
    return np.asarray(drawn[0])


def _film_note(steps: int, total: float) -> str:
    return f"One episode with the most likely actions: {steps:,} steps, return {total:,.1f}."
