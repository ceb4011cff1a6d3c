"""Owns making the copies of a torch task that one worker steps, wherever that worker is."""

from dataclasses import dataclass

import torch

from dressage.policy.rsl_rl_policy.vec_env import VecEnvRollouts
from dressage.policy.torch_envs.catalog import TorchTask
from dressage.policy.torch_envs.gymnasium_batch import GymnasiumBatch


@dataclass(frozen=True)
class MakeRollouts:
    """Makes one worker's copies from a seed.

    Attributes:
        task: What to make.
        num_envs: How many copies.
        stagger: Whether the copies begin somewhere within their time limit, so that they do not all end at
            once; rsl_rl calls it `init_at_random_ep_len`.
        device: Where they live.
    """

    task: TorchTask
    num_envs: int
    stagger: bool = False
    device: str = "cpu"

    def __call__(self, seed: int) -> VecEnvRollouts:
        """Make the copies."""
        env = self.task.make(self.num_envs, seed, self.device)
        # Gymnasium counts the steps of its episodes by itself.
        if self.stagger and not isinstance(env, GymnasiumBatch):
            generator = torch.Generator().manual_seed(seed)
            begun = torch.rand(self.num_envs, generator=generator) * float(env.max_episode_length)
            env.episode_length_buf = begun.to(env.device).long()
        return VecEnvRollouts(env, self.task.name)
