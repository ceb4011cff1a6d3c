"""Advantages by their definition: sums over whole episode pieces, in float64, without a recursion."""

import numpy as np


def gae_by_definition(rewards, bootstrap_dones, episode_ends, values, next_values, gamma, gae_lambda):
    """Sum the discounted errors of each row forward to the end of its episode; one column at a time."""
    arrays = (rewards, bootstrap_dones, episode_ends, values, next_values)
    columns = [np.asarray(array, np.float64).reshape(len(rewards), -1).T for array in arrays]
    advantages = [_column(*column, gamma, gae_lambda) for column in zip(*columns, strict=True)]
    advantages = np.transpose(advantages).reshape(np.shape(rewards))
    return advantages, advantages + np.asarray(values, np.float64)


def _column(rewards, bootstrap_dones, episode_ends, values, next_values, gamma, gae_lambda):
    deltas = rewards + gamma * np.where(bootstrap_dones, 0.0, next_values) - values
    advantages = []
    for row in range(len(rewards)):
        ends = np.flatnonzero(episode_ends[row:])
        length = ends[0] + 1 if len(ends) else len(rewards) - row
        weights = (gamma * gae_lambda) ** np.arange(length)
        advantages.append(np.sum(weights * deltas[row : row + length]))
    return advantages
