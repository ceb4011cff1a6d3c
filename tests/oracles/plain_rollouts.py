"""Scaled rewards and normalised advantages by plain loops over rows and copies, in float64."""

import numpy as np


class RewardScaler:
    """Divides rewards by the deviation of all discounted returns seen so far; keeps every one of them."""

    def __init__(self, copies, gamma, clip=10.0):
        self.gamma, self.clip = gamma, clip
        self.running = [0.0] * copies
        self.seen = []

    def scale(self, rewards, episode_ends, valid=None):
        """Take in a rollout `[T, B]`; rows that are not valid are no samples and leave no trace."""
        rewards = np.asarray(rewards, np.float64)
        for row, copy in np.ndindex(rewards.shape):
            if valid is not None and not valid[row, copy]:
                continue
            self.running[copy] = self.gamma * self.running[copy] + rewards[row, copy]
            self.seen.append(self.running[copy])
            if episode_ends[row, copy]:
                self.running[copy] = 0.0
        deviation = np.sqrt(np.var(self.seen) + 1e-8)
        return np.clip(rewards / deviation, -self.clip, self.clip)


def normalized(advantages, valid=None):
    """Zero mean and unit population deviation over the valid samples; 0 elsewhere is not promised."""
    advantages = np.asarray(advantages, np.float64)
    kept = advantages.ravel() if valid is None else advantages[np.asarray(valid)]
    return (advantages - kept.mean()) / kept.std()
