"""Owns filming a finished policy: the episode with the median return of several, drawn step by step."""

import os
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dressage.envs import BaseEnv, HostTask, HostVectorEnv, can_render, make, render
from dressage.errors import DressageError
from dressage.ppo import Policy
from dressage.reporting.film import shrink, thin_out
from dressage.reporting.rollouts import UNLIMITED_STEPS, HostActor, first_episodes
from dressage.reporting.wording import describe_count

FILMED_OF = 11
"""Of so many episodes that with the median return is filmed: odd, so that one of them is the median."""

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


def film_episode(name: str, policy: Policy, seed: int, episodes: int = FILMED_OF) -> Pictures:
    """Play episodes with the most likely actions and draw that with the median return.

    Args:
        name: The task's name; one that cannot be drawn gives no frames and a note that says why.
        policy: Acts.
        seed: Draws the initial states.
        episodes: How many to choose from, at least 1; of an even number it is the lower of the middle two.
    """
    task = make(name)
    if not isinstance(task, BaseEnv):
        return _film_on_host(name, policy, seed, episodes)
    if can_render(task):
        return _film_functional(task, policy, seed, episodes)
    return Pictures([], FRAMES_PER_SECOND, f"No film: {name} has no render(state) that draws a picture.")


def median_index(returns: np.ndarray) -> int:
    """Return the index of the median of some returns `[E]`, the lower of the middle two of an even number."""
    return int(np.argsort(returns, kind="stable")[(len(returns) - 1) // 2])


def candidate_seeds(seed: int, episodes: int) -> list[int]:
    """Derive the seeds of episodes on the host, so that those of neighbouring seeds share none."""
    # Halved, since some environments take no seed beyond 2**31 - 1.
    return [int(word >> 1) for word in np.random.SeedSequence(seed).generate_state(episodes)]


def film_note(episodes: int, steps: int, total: float) -> str:
    """Say which of how many episodes a film shows."""
    which = "One episode" if episodes == 1 else f"The episode with the median return of {episodes}"
    return f"{which} with the most likely actions: {describe_count(steps, 'step')}, return {total:,.1f}."


def _film_functional(task: BaseEnv, policy: Policy, seed: int, episodes: int) -> Pictures:
    keys = jax.random.split(jax.random.key(seed), episodes)
    play = jax.jit(partial(_play, task))
    # Played again as a whole, so that what is drawn is to the last bit what was measured.
    chosen = median_index(np.asarray(play(policy, keys, jnp.int32(0))[0]))
    returns, lengths, start, states = play(policy, keys, jnp.int32(chosen))
    length = int(lengths[chosen])
    pace = 1.0 / float(task.time_step) if isinstance(task, Timed) else FRAMES_PER_SECOND
    kept, stride = thin_out(range(-1, length), MOST_FRAMES)
    drawn = (start if step < 0 else jax.tree.map(lambda leaf, step=step: leaf[step], states) for step in kept)
    frames = [shrink(render(task, state), WIDEST_FRAME) for state in drawn]
    return Pictures(frames, pace / stride, film_note(episodes, length, float(returns[chosen])))


def _play(task: BaseEnv, policy: Policy, keys: Array, chosen: Array) -> tuple[Array, Array, Any, Any]:
    """Play one episode a key; gives `[E]` returns and lengths, the chosen one's first state and the rest."""

    def step(carry: tuple[Any, ...], _: None) -> tuple[tuple[Any, ...], Any]:
        state, observation, returns, lengths, over = carry
        action = policy.get_action(observation)
        state, observation, reward, terminated, truncated = jax.vmap(task.step)(state, action)[:5]
        returns, lengths = returns + jnp.where(over, 0.0, reward), lengths + ~over
        after = (state, observation, returns, lengths, over | terminated | truncated)
        return after, jax.tree.map(lambda leaf: leaf[chosen], state)

    state, observation, _ = jax.vmap(task.reset)(keys)
    zeros = jnp.zeros(len(keys))
    begin = (state, observation, zeros, jnp.zeros(len(keys), jnp.int32), zeros > 0.0)
    (_, _, returns, lengths, _), states = lax.scan(step, begin, None, task.max_steps)
    return returns, lengths, jax.tree.map(lambda leaf: leaf[chosen], state), states


def _film_on_host(name: str, policy: Policy, seed: int, episodes: int) -> Pictures:
    # Many environments draw with SDL, which looks for a screen and a sound card that a server has not.
    for variable, value in SDL_SETTINGS.items():
        os.environ.setdefault(variable, value)
    actor = HostActor(policy, seed, stochastic=False)
    try:
        task = make(name, render_mode="rgb_array")
        assert isinstance(task, HostTask), "the same name without pictures is one"
        env = task.make(1)
    except (DressageError, gymnasium.error.Error) as error:
        return Pictures([], FRAMES_PER_SECOND, f"No film: {name} makes no pictures ({error}).")
    try:
        env.reset(seed)
        _picture(env)
        chosen = _median_seed(name, actor, task.max_steps, seed, episodes)
        return _film_first_episode(env, actor, task.max_steps, chosen, episodes)
    except gymnasium.error.Error as error:
        return Pictures([], FRAMES_PER_SECOND, f"No film: {name} makes no pictures ({error}).")
    finally:
        env.close()


def _median_seed(name: str, actor: HostActor, max_steps: int | None, seed: int, episodes: int) -> int:
    """Return the seed whose episode has the median return; played without drawing, which is slow."""
    seeds = candidate_seeds(seed, episodes)
    if episodes == 1:
        return seeds[0]
    task = make(name)
    assert isinstance(task, HostTask), "the same name with pictures is one"
    env = task.make(1)
    try:
        played = [first_episodes(env, actor, max_steps, candidate) for candidate in seeds]
    finally:
        env.close()
    # What did not finish has no return; the others' median is still one of them.
    done = [(seed, one.returns[0]) for seed, one in zip(seeds, played, strict=True) if one.finished[0]]
    return done[median_index(np.array([total for _, total in done]))][0] if done else seeds[0]


def _film_first_episode(
    env: HostVectorEnv, actor: HostActor, max_steps: int | None, seed: int, episodes: int
) -> Pictures:
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
    note = film_note(episodes, int(step.episode_length[0]), float(step.episode_return[0]))
    return Pictures([shrink(frame, WIDEST_FRAME) for frame in kept], pace / stride, note)


def _picture(env: HostVectorEnv) -> np.ndarray:
    drawn = env.env.render()
    if not drawn or drawn[0] is None:
        raise gymnasium.error.Error("render() returned no picture")
    return np.asarray(drawn[0])
