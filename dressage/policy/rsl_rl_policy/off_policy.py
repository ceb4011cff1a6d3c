"""Owns learning from rollouts of older weights: V-trace targets in place of rsl_rl's own.

The storage then holds the current policy's log-probabilities, so PPO's trust region lies around the current
policy, and the advantages carry the clipped importance ratio of the policy that acted.
"""

from dataclasses import dataclass

import torch
from tensordict import TensorDict
from torch import Tensor

from dressage.policy.rsl_rl_policy.configuration import Algorithm
from dressage.policy.rsl_rl_policy.fragments import Tensors, group, numbered
from dressage.policy.rsl_rl_policy.learning import time_outs
from dressage.policy.rsl_rl_policy.observations import join_parts


@dataclass(frozen=True)
class Corrected:
    """What the correction found, for the metrics.

    Attributes:
        mean_ratio: Mean importance ratio before clipping.
        clipped_share: Share of the samples whose ratio was clipped, in [0, 1].
    """

    mean_ratio: float
    clipped_share: float


@dataclass(frozen=True)
class _Current:
    values: Tensor  # [T, N]
    log_probs: Tensor  # [T, N]
    distribution_params: tuple[Tensor, ...]  # each [T, N, ...]


def vtrace(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    ratios: Tensor,
    terminated: Tensor,
    episode_ends: Tensor,
    gamma: float,
    lam: float,
) -> tuple[Tensor, Tensor]:
    """Compute V-trace value targets and policy-gradient advantages.

    With `rho = min(1, ratio)`, `c = lam rho`, `n` the next value (0 at termination) and `e` the episode's
    end:

        target_t = v_t + rho_t (r_t + gamma n_t - v_t) + gamma c_t (1 - e_t) (target_{t+1} - v_{t+1})
        advantage_t = rho_t (r_t + gamma n'_t - v_t)

    where `n'` is `target_{t+1}` within an episode and `n` at its end.

    Args:
        rewards: `[T, N]`.
        values: Current critic's values of the observations, `[T, N]`.
        next_values: Values of what really followed each step, `[T, N]`.
        ratios: Probability of the action now over that when it was taken, `[T, N]`, positive.
        terminated: `[T, N]` bool: nothing follows.
        episode_ends: `[T, N]` bool: the episode ended for any reason.
        gamma: Discount factor in [0, 1].
        lam: Trace decay in [0, 1].

    Returns:
        Targets and advantages, `[T, N]` each. At ratio 1 the targets are those of generalised advantage
        estimation.

    Reference:
        Espeholt et al., "IMPALA: Scalable Distributed Deep-RL with Importance Weighted Actor-Learner
        Architectures", 2018, equation 1 and section 4.2, with both clipping thresholds 1.
    """
    clipped = ratios.clamp(max=1.0)
    follows = 1.0 - terminated.float()
    goes_on = 1.0 - episode_ends.float()
    deltas = clipped * (rewards + gamma * follows * next_values - values)
    surplus = torch.zeros_like(values[0])
    targets = torch.empty_like(values)
    for step in reversed(range(values.shape[0])):
        surplus = deltas[step] + gamma * lam * clipped[step] * goes_on[step] * surplus
        targets[step] = values[step] + surplus
    later = torch.cat([targets[1:], next_values[-1:]])
    ahead = torch.where(episode_ends, next_values, later)
    return targets, clipped * (rewards + gamma * follows * ahead - values)


def correct(algorithm: Algorithm, steps: Tensors, last: Tensors, finals: Tensors) -> Corrected:
    """Replace the targets in a filled storage by V-trace's.

    Args:
        algorithm: What learns; its storage is filled.
        steps: The rollout by path, `[T, N, ...]`.
        last: What held after it by path, `[N, ...]`.
        finals: Observations that time limits cut, by path, `[M, ...]`, with `index` `[M, 2]`.
    """
    storage = algorithm.storage
    current = _current(algorithm)
    ratios = torch.exp(current.log_probs - steps["log_prob"])
    ends = steps["terminated"] | steps["truncated"]
    by_final, by_rule = time_outs(steps)
    added = algorithm.gamma * steps["bootstrap_value"] * (by_final | by_rule)
    rewards = storage.rewards.squeeze(-1) - added  # Intrinsic rewards stay in, time-outs come anew.
    followed = _next_values(algorithm, steps, last, finals, current.values)
    targets, advantages = vtrace(
        rewards, current.values, followed, ratios, steps["terminated"], ends, algorithm.gamma, algorithm.lam
    )
    if not algorithm.normalize_advantage_per_mini_batch:
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    storage.values = current.values.unsqueeze(-1)
    storage.returns, storage.advantages = targets.unsqueeze(-1), advantages.unsqueeze(-1)
    storage.actions_log_prob = current.log_probs.unsqueeze(-1)
    storage.distribution_params = current.distribution_params
    return Corrected(float(ratios.mean()), float((ratios > 1.0).float().mean()))


def _current(algorithm: Algorithm) -> _Current:
    """Evaluate the stored steps under the current models."""
    storage, actor, critic = algorithm.storage, algorithm.actor, algorithm.critic
    shape = storage.actions.shape[:2]
    if actor.is_recurrent or critic.is_recurrent:
        batch = next(storage.recurrent_mini_batch_generator(1, 1))
        actor(
            batch.observations, masks=batch.masks, hidden_state=batch.hidden_states[0], stochastic_output=True
        )
        values = critic(batch.observations, masks=batch.masks, hidden_state=batch.hidden_states[1])
        log_probs = actor.get_output_log_prob(batch.actions)
    else:
        flat = storage.observations.flatten(0, 1)
        actor(flat, stochastic_output=True)
        values = critic(flat)
        log_probs = actor.get_output_log_prob(storage.actions.flatten(0, 1))
    params = tuple(
        part.reshape(*shape, *part.shape[-1:]).clone() for part in actor.output_distribution_params
    )
    return _Current(values.reshape(shape), log_probs.reshape(shape), params)


def _next_values(
    algorithm: Algorithm, steps: Tensors, last: Tensors, finals: Tensors, values: Tensor
) -> Tensor:
    """Return the value of what followed each step, `[T, N]`; rows that terminated are not read."""
    followed = torch.cat([values[1:], _critic_values(algorithm, last).unsqueeze(0)])
    _, by_rule = time_outs(steps)
    followed = torch.where(by_rule, values, followed)
    if finals:
        index = finals["index"]
        followed[index[:, 0], index[:, 1]] = _critic_values(algorithm, finals)
    return followed


def _critic_values(algorithm: Algorithm, rows: Tensors) -> Tensor:
    critic = algorithm.critic
    groups = group(rows, "observation")
    size = next(iter(groups.values())).shape[0]
    parts = numbered(rows, "hidden_state/critic")
    critic.reset(hidden_state=join_parts(tuple(part.transpose(0, 1).contiguous() for part in parts)))
    values: Tensor = critic(TensorDict(groups, batch_size=[size])).squeeze(-1)
    critic.reset()
    return values
