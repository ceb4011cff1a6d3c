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


def vtrace_by_definition(
    rewards, dones, ends, values, next_values, ratios, gamma, decay, clip_ratio, clip_trace
):
    """Sum every later surprise of one copy, discounted and traced, as the paper's equation 1 writes it."""
    length = len(rewards)
    weights, traces = np.minimum(clip_ratio, ratios), decay * np.minimum(clip_trace, ratios)
    followed = np.where(dones, 0.0, next_values)
    surprises = weights * (rewards + gamma * followed - values)
    targets = np.array(values, np.float64)
    for start in range(length):
        stop = next((row for row in range(start, length) if ends[row]), length - 1)
        for row in range(start, stop + 1):
            targets[start] += gamma ** (row - start) * np.prod(traces[start:row]) * surprises[row]
    within = [row + 1 < length and not ends[row] for row in range(length)]
    ahead = [targets[row + 1] if within[row] else followed[row] for row in range(length)]
    return weights * (rewards + gamma * np.array(ahead) - values), targets
