"""Evaluation inside a compiled program: one deterministic episode a copy, with everything frozen."""

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dressage.learning.groups import Group
from dressage.learning.records import AgentState, Experience, Observed, Outcome
from dressage.learning.scan_driver import GroupedEnv, Groups, remember

EVALUATION_KEY = (
    0x65_76_61_6C  # Folded into the run's key: evaluation takes no number from the training stream.
)

HostOrDevice: TypeAlias = Array | np.ndarray
"""An array of NumPy where the host driver plays, one of JAX elsewhere."""


class EpisodeResults(NamedTuple):
    """The outcome of one evaluation episode a copy, for one group.

    Attributes:
        returns: `[..., B]` undiscounted return, meaningful where finished.
        lengths: `[..., B]` int32 steps.
        finished: `[..., B]` bool, whether the episode ended within the steps given.
        costs: `[..., B]` undiscounted cost, meaningful where finished; None where the environment has none.
    """

    returns: HostOrDevice
    lengths: HostOrDevice
    finished: HostOrDevice
    costs: HostOrDevice | None = None


@dataclass(frozen=True)
class Evaluation:
    """How evaluation episodes are played.

    Attributes:
        stochastic: Whether actions are sampled; otherwise the most likely ones are taken.
        seed: Tells evaluations of one state apart.
    """

    stochastic: bool = False
    seed: int = 0


def evaluate_groups(
    env: GroupedEnv,
    steps: int,
    stochastic: bool,
    groups: Groups,
    agents: tuple[AgentState, ...],
    run_key: Array,
    seed: Array,
) -> tuple[EpisodeResults, ...]:
    """Play one episode in every copy and return the results of every group.

    Args:
        env: Evaluation copies, apart from those that train.
        steps: The longest episode.
        stochastic: Whether actions are sampled.
        groups: The agents.
        agents: Their states; nothing in them changes.
        run_key: The run's key; evaluation takes no number from the training stream.
        seed: `[]` uint32, tells evaluations of one state apart.
    """
    key = jax.random.fold_in(evaluation_key(run_key), seed)
    rollouts, alive = evaluate(env, groups, agents, key, steps, stochastic=stochastic)
    return tuple(episode_results(rollout, alive) for rollout in rollouts)


def evaluation_key(key: Array) -> Array:
    """Derive the key of an evaluation from the run's key, without using that up."""
    return jax.random.fold_in(key, EVALUATION_KEY)


def evaluate(
    env: GroupedEnv,
    groups: Groups,
    agents: tuple[AgentState, ...],
    key: Array,
    steps: int,
    *,
    stochastic: bool = False,
) -> tuple[tuple[Experience, ...], Array]:
    """Play one episode in every copy.

    Args:
        env: Evaluation copies, apart from those that train.
        groups: The agents.
        agents: Their states; nothing in them changes, normalisers included.
        key: Draws the initial states.
        steps: The longest episode.
        stochastic: Whether actions are sampled; otherwise the mode of each policy is taken.

    Returns:
        One `[T, ..., B]` record a group, and `alive [T, B]`: True up to and with the step that ended the
        episode.
    """
    environment, observed = env.reset(key)

    step = partial(_step, env, groups, agents, key if stochastic else None)
    observed = tuple(group.begin(seen, env.copies) for group, seen in zip(groups, observed, strict=True))
    alive = jnp.ones(env.copies, bool)
    _, (rollouts, alive) = lax.scan(step, (environment, observed, alive), jnp.arange(steps))
    return rollouts, alive


class Played(NamedTuple):
    """What one group did in one step of evaluation.

    Attributes:
        outputs: The actor's outputs.
        actions: The policy's actions, before squashing, clipping or start offsets.
        taken: The environment's actions.
        memory: What the network remembers after it.
    """

    outputs: Any
    actions: Any
    taken: Any
    memory: Any


def _step(
    env: GroupedEnv,
    groups: Groups,
    agents: tuple[AgentState, ...],
    key: Array | None,
    carry: tuple[Any, tuple[Observed, ...], Array],
    index: Array,
) -> Any:  # noqa: ANN401 (the carry again, and the step's records)
    environment, observed, alive = carry
    drawn = (None,) * len(groups) if key is None else sampling_keys(key, index, len(groups))
    played = [play(*row) for row in zip(groups, agents, observed, drawn, strict=True)]
    environment, outcomes = env.step(environment, tuple(one.taken for one in played))
    rows = tuple(
        Experience(seen, one.outputs, one.actions, outcome.replace(observed=None))
        for seen, one, outcome in zip(observed, played, outcomes, strict=True)
    )
    following = remember(outcomes, tuple(one.memory for one in played))
    return (environment, following, alive & ~copies_over(outcomes)), (rows, alive)


def sampling_keys(key: Array, step: Array | int, groups: int) -> Array:
    """Return a key for each group's actions of one step."""
    return jax.random.split(jax.random.fold_in(key, step), groups)


def play(group: Group, agent: AgentState, observed: Observed, key: Array | None = None) -> Played:
    """Choose the most likely actions, or sample them where a key is given."""
    memory, outputs = group.step_policy(agent, observed)
    distribution = group.distribution(outputs, observed)
    actions = distribution.mode() if key is None else distribution.sample(key)
    return Played(outputs, actions, group.environment_actions(actions), memory)


def copies_over(outcomes: tuple[Outcome, ...]) -> HostOrDevice:
    """Whether the episode of each copy is over, `[B]`: nobody is left in it."""
    first = outcomes[0]
    if first.copy_ends is None:
        return first.episode_ends
    return first.copy_ends if first.copy_ends.ndim == 1 else first.copy_ends[0]


def episode_results(rollout: Experience, alive: Array) -> EpisodeResults:
    """Read returns and lengths off the step that ended each copy's first episode, for every agent."""
    outcome = rollout.outcome
    over = outcome.episode_ends if outcome.copy_ends is None else outcome.copy_ends
    last = over & (alive if over.ndim == alive.ndim else alive[:, None])
    finished = last.any(0)
    returns = jnp.where(last, outcome.episode_returns, 0.0).sum(0)
    lengths = jnp.where(last, outcome.episode_lengths, 0).sum(0)
    costs = None
    if outcome.episode_costs is not None:
        costs = jnp.where(finished, jnp.where(last, outcome.episode_costs, 0.0).sum(0), jnp.nan)
    return EpisodeResults(jnp.where(finished, returns, jnp.nan), lengths, finished, costs)
