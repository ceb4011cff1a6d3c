"""Owns filming the policies of several agents: one episode on the host, with its pictures."""

import os
from typing import Any

import gymnasium
import numpy as np

from dressage.envs import MultiAgentEnv, ParallelTask, can_render, make, to_parallel_env
from dressage.envs.registry import Task
from dressage.errors import DressageError
from dressage.reporting.film import shrink, thin_out
from dressage.reporting.rollouts import (
    FRAMES_PER_SECOND,
    MOST_FRAMES,
    SDL_SETTINGS,
    UNLIMITED_STEPS,
    WIDEST_FRAME,
    Pictures,
)
from dressage.rl.policy_set import PolicySet

RENDER_MODE = "rgb_array"


def film_agents(name: str, policies: PolicySet, seed: int) -> Pictures:
    """Play one episode with the most likely actions of every agent and draw it.

    Args:
        name: The task's name; one that cannot be drawn gives no frames and a note that says why.
        policies: Act.
        seed: Draws the initial state.
    """
    for variable, value in SDL_SETTINGS.items():
        os.environ.setdefault(variable, value)
    try:
        env = _drawable(make(name))
        if env is None:
            return _no_film(f"{name} has no render(state) that draws a picture")
        return _film(env, policies, seed)
    except (DressageError, gymnasium.error.Error, ImportError, NotImplementedError) as error:
        return _no_film(f"{name} makes no pictures ({error})")


def _drawable(task: Task) -> Any:  # noqa: ANN401 (PettingZoo says nothing about its types)
    if isinstance(task, ParallelTask):
        return task.make(render_mode=RENDER_MODE)
    if isinstance(task, MultiAgentEnv) and can_render(task):
        return to_parallel_env(task, render_mode=RENDER_MODE)
    return None


def _film(env: Any, policies: PolicySet, seed: int) -> Pictures:  # noqa: ANN401
    policies.reset()
    try:
        frames, returns = _play(env, policies, seed)
    finally:
        env.close()
    pace = float((env.metadata or {}).get("render_fps", FRAMES_PER_SECOND))
    kept, stride = thin_out(frames, MOST_FRAMES)
    note = (
        f"One episode with the most likely actions: {len(frames) - 1:,} steps, return "
        f"{np.mean(list(returns.values())):,.1f} (mean of {len(returns)} agents)."
    )
    return Pictures([shrink(frame, WIDEST_FRAME) for frame in kept], pace / stride, note)


def _play(env: Any, policies: PolicySet, seed: int) -> tuple[list[np.ndarray], dict[str, float]]:  # noqa: ANN401
    """Play one episode; returns its pictures and each agent's return."""
    observations, _ = env.reset(seed=seed)
    frames, returns = [_picture(env)], dict.fromkeys(env.possible_agents, 0.0)
    over = False
    while not over and len(frames) <= UNLIMITED_STEPS:
        living = {agent: observations[agent] for agent in env.agents}
        observations, rewards, terminated, truncated, _ = env.step(policies.act(living))
        returns = {agent: total + float(rewards.get(agent, 0.0)) for agent, total in returns.items()}
        frames.append(_picture(env))
        over = not env.agents or all(terminated[agent] or truncated[agent] for agent in env.agents)
    return frames, returns


def _picture(env: Any) -> np.ndarray:  # noqa: ANN401
    drawn = env.render()
    if drawn is None:
        raise gymnasium.error.Error("render() returned no picture")
    return np.asarray(drawn)


def _no_film(reason: str) -> Pictures:
    return Pictures([], FRAMES_PER_SECOND, f"No film: {reason}.")
