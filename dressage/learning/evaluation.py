"""Evaluation inside a compiled program: one deterministic episode a copy, with everything frozen."""

from typing import Any, NamedTuple, TypeAlias

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dressage.learning.groups import Group
from dressage.learning.records import AgentState, Experience, Observed
from dressage.learning.scan_driver import GroupedEnv, Groups

HostOrDevice: TypeAlias = Array | np.ndarray
"""An array of NumPy where the host driver plays, one of JAX elsewhere."""


class EpisodeResults(NamedTuple):
    """The outcome of one evaluation episode a copy, for one group.

    Attributes:
        returns: `[..., B]` undiscounted return, meaningful where finished.
        lengths: `[..., B]` int32 steps.
        finished: `[..., B]` bool, whether the episode ended within the steps given.
    """

    returns: HostOrDevice
    lengths: HostOrDevice
    finished: HostOrDevice


def evaluate(
    env: GroupedEnv, groups: Groups, agents: tuple[AgentState, ...], key: Array, steps: int
) -> tuple[tuple[Experience, ...], Array]:
    """Play one episode in every copy with the mode of each policy.

    Args:
        env: Evaluation copies, apart from those that train.
        groups: The agents.
        agents: Their states; nothing in them changes, normalisers included.
        key: Draws the initial states.
        steps: The longest episode.

    Returns:
        One `[T, ..., B]` record a group, and `alive [T, B]`: True up to and with the step that ended the
        episode.
    """
    environment, observed = env.reset(key)

    def step(carry: tuple[Any, tuple[Observed, ...], Array], _: None) -> Any:  # noqa: ANN401
        environment, observed, alive = carry
        played = [play(*row) for row in zip(groups, agents, observed, strict=True)]
        environment, outcomes = env.step(environment, tuple(taken for _, _, taken in played))
        rows = tuple(
            Experience(seen, outputs, actions, outcome.replace(observed=None))
            for seen, (outputs, actions, _), outcome in zip(observed, played, outcomes, strict=True)
        )
        still = alive & ~episode_over(outcomes[0].episode_ends)
        return (environment, tuple(outcome.observed for outcome in outcomes), still), (rows, alive)

    alive = jnp.ones(env.copies, bool)
    _, (rollouts, alive) = lax.scan(step, (environment, observed, alive), None, steps)
    return rollouts, alive


def play(group: Group, agent: AgentState, observed: Observed) -> tuple[Any, Any, Array]:
    """Choose the most likely actions; returns actor outputs, policy actions and environment actions."""
    outputs = group.policy_outputs(agent, observed)
    actions = group.distribution(outputs, observed).mode()
    return outputs, actions, group.environment_actions(actions)


def episode_over(ends: Array) -> Array:
    """Whether the episode of each copy is over: when that of its last agent is."""
    return ends if ends.ndim == 1 else ends.all(0)


def episode_results(rollout: Experience, alive: Array) -> EpisodeResults:
    """Read returns and lengths off the step that ended each copy's first episode."""
    outcome = rollout.outcome
    last = outcome.episode_ends & (alive if outcome.episode_ends.ndim == alive.ndim else alive[:, None])
    finished = last.any(0)
    returns = jnp.where(last, outcome.episode_returns, 0.0).sum(0)
    lengths = jnp.where(last, outcome.episode_lengths, 0).sum(0)
    return EpisodeResults(jnp.where(finished, returns, jnp.nan), lengths, finished)
