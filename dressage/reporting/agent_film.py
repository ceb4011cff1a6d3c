"""Owns filming the policies of several agents: one episode on the host, with its pictures."""

import os
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from dressage.envs import BaseEnv, MultiAgentEnv, ParallelTask, can_render, make, to_parallel_env
from dressage.envs.registry import Task
from dressage.envs.wrappers import as_multi_agent
from dressage.errors import DressageError
from dressage.reporting.film import shrink, thin_out
from dressage.reporting.filming import (
    FILMED_OF,
    FRAMES_PER_SECOND,
    MOST_FRAMES,
    SDL_SETTINGS,
    WIDEST_FRAME,
    Pictures,
    candidate_seeds,
    film_note,
    median_index,
)
from dressage.reporting.rollouts import UNLIMITED_STEPS
from dressage.rl.policy_set import PolicySet

RENDER_MODE = "rgb_array"


class _Episode(NamedTuple):
    frames: list[np.ndarray]
    steps: int
    returns: dict[str, float]

    @property
    def mean_return(self) -> float:
        """Mean over the agents."""
        return float(np.mean(list(self.returns.values())))


def film_agents(name: str, policies: PolicySet, seed: int, episodes: int = FILMED_OF) -> Pictures:
    """Play episodes with the most likely actions of every agent and draw that with the median return.

    Args:
        name: The task's name; one that cannot be drawn gives no frames and a note that says why.
        policies: Act.
        seed: Draws the initial states.
        episodes: How many to choose from, at least 1; an episode's return is the mean over the agents.
    """
    for variable, value in SDL_SETTINGS.items():
        os.environ.setdefault(variable, value)
    try:
        env = _drawable(make(name))
        if env is None:
            return _no_film(f"{name} has no render(state) that draws a picture")
        return _film(env, policies, seed, episodes)
    except (DressageError, gymnasium.error.Error, ImportError, NotImplementedError) as error:
        return _no_film(f"{name} makes no pictures ({error})")


def _drawable(task: Task) -> Any:  # noqa: ANN401 (PettingZoo says nothing about its types)
    if isinstance(task, ParallelTask):
        return task.make(render_mode=RENDER_MODE)
    if isinstance(task, BaseEnv | MultiAgentEnv) and can_render(task):
        return to_parallel_env(as_multi_agent(task), render_mode=RENDER_MODE)
    return None


def _film(env: Any, policies: PolicySet, seed: int, episodes: int) -> Pictures:  # noqa: ANN401
    try:
        env.reset(seed=seed)
        _picture(env)  # Refused before anything is played that could not be drawn.
        chosen = _median_seed(env, policies, seed, episodes)
        played = _play(env, policies, chosen, drawn=True)
    finally:
        env.close()
    pace = float((env.metadata or {}).get("render_fps", FRAMES_PER_SECOND))
    kept, stride = thin_out(played.frames, MOST_FRAMES)
    note = film_note(episodes, played.steps, played.mean_return).removesuffix(".")
    note += f" (mean of {len(played.returns)} agents)." if len(played.returns) > 1 else "."
    return Pictures([shrink(frame, WIDEST_FRAME) for frame in kept], pace / stride, note)


def _median_seed(env: Any, policies: PolicySet, seed: int, episodes: int) -> int:  # noqa: ANN401
    seeds = candidate_seeds(seed, episodes)
    if episodes == 1:
        return seeds[0]
    returns = [_play(env, policies, candidate, drawn=False).mean_return for candidate in seeds]
    return seeds[median_index(np.array(returns))]


def _play(env: Any, policies: PolicySet, seed: int, *, drawn: bool) -> _Episode:  # noqa: ANN401
    """Play one episode, with a picture of its start and of what follows each step where it is drawn."""
    policies.reset()
    observations, _ = env.reset(seed=seed)
    frames, returns = [_picture(env)] if drawn else [], dict.fromkeys(env.possible_agents, 0.0)
    over, steps = False, 0
    while not over and steps < UNLIMITED_STEPS:
        living = {agent: observations[agent] for agent in env.agents}
        observations, rewards, terminated, truncated, _ = env.step(policies.act(living))
        returns = {agent: total + float(rewards.get(agent, 0.0)) for agent, total in returns.items()}
        steps += 1
        frames += [_picture(env)] if drawn else []
        over = not env.agents or all(terminated[agent] or truncated[agent] for agent in env.agents)
    return _Episode(frames, steps, returns)


def _picture(env: Any) -> np.ndarray:  # noqa: ANN401
    drawn = env.render()
    if drawn is None:
        raise gymnasium.error.Error("render() returned no picture")
    return np.asarray(drawn)


def _no_film(reason: str) -> Pictures:
    return Pictures([], FRAMES_PER_SECOND, f"No film: {reason}.")
