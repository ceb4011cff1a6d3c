"""Owns filming policies of rsl_rl: the episode with the median return of several, drawn step by step."""

import numpy as np

from dressage.policy.rsl_rl_policy.finished import FinishedPolicy
from dressage.policy.torch_envs.catalog import HOPPER, PENDULUM, TorchTask
from dressage.policy.torch_envs.drawing import draw_hopper, draw_pendulum
from dressage.policy.torch_envs.episode_batch import EpisodeBatch
from dressage.policy.torch_envs.rollouts import MakeRollouts
from dressage.reporting.film import thin_out
from dressage.reporting.filming import FRAMES_PER_SECOND, MOST_FRAMES, Pictures, film_note, median_index

DRAWN = {PENDULUM.name: draw_pendulum, HOPPER.name: draw_hopper}


def film_torch_task(task: TorchTask, policy: FinishedPolicy, seed: int, episodes: int) -> Pictures:
    """Play episodes by the mean action and draw that with the median return.

    Args:
        task: One that cannot be drawn gives no frames and a note that says so.
        policy: Acts.
        seed: Draws the initial states.
        episodes: How many to choose from, at least 1.
    """
    if task.name not in DRAWN:
        return Pictures([], FRAMES_PER_SECOND, f"No film: {task.name} cannot be drawn.")
    face = MakeRollouts(task, episodes)(seed)
    env = face.env
    assert isinstance(env, EpisodeBatch), "what is drawn comes with dressage"
    player = policy.player(episodes)
    present, states, rewards = face.observe(), [env.states.numpy()], []
    running, returns, lengths = np.ones(episodes, bool), np.zeros(episodes), np.zeros(episodes, int)
    while running.any():
        response = player.rollout_step(present)
        present = face.step(response.action)
        player.postprocess(present, response)
        rewards.append(np.asarray(present.last_reward))
        states.append(env.states.numpy())
        returns += running * rewards[-1]
        lengths += running
        running &= ~(np.asarray(present.last_terminated) | np.asarray(present.last_truncated))
    chosen = median_index(returns)
    # The state after the last step is the next episode's first.
    kept, stride = thin_out(range(lengths[chosen]), MOST_FRAMES)
    frames = [DRAWN[task.name](states[step][chosen]) for step in kept]
    note = film_note(episodes, int(lengths[chosen]), float(returns[chosen]))
    return Pictures(frames, 1.0 / (env.step_dt * stride), note)
