"""What each update of a chunk did, kept for the host: metrics, and every episode that it finished."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array, lax

from dressage.learning import scan_driver
from dressage.learning.faults import latch_fault
from dressage.learning.metrics import ChunkSums
from dressage.learning.records import Experience, LearnerState
from dressage.learning.scan_driver import GroupedEnv, Groups


class EpisodeRows(struct.PyTreeNode):
    """Where the copies' episodes ended in one rollout, and what each agent had of them.

    Attributes:
        ends: `[T, B]` bool, whether a copy's episode ended with the step.
        lengths: `[T, B]` int32 steps of it.
        truncated: `[T, B]` bool, whether some agent was cut off rather than finished in that step.
        returns: One `[T, ..., B]` a group.
        costs: One `[T, ..., B]` a group, or None where the environment knows no cost.
    """

    ends: Array
    lengths: Array
    truncated: Array
    returns: tuple[Array, ...]
    costs: tuple[Array | None, ...]

    @classmethod
    def of(cls, rollouts: tuple[Experience, ...]) -> "EpisodeRows":
        """Read them off a rollout's records."""
        outcomes = [rollout.outcome for rollout in rollouts]
        first = outcomes[0]
        over = first.episode_ends if first.copy_ends is None else first.copy_ends
        lengths = first.episode_lengths if first.copy_lengths is None else first.copy_lengths
        cut = [_any_agent(outcome.episode_ends & ~outcome.terminated) for outcome in outcomes]
        return cls(
            ends=_first_agent(over),
            lengths=_first_agent(lengths),
            truncated=jnp.stack(cut).any(0),
            returns=tuple(outcome.episode_returns for outcome in outcomes),
            costs=tuple(outcome.episode_costs for outcome in outcomes),
        )


class UpdateLog(struct.PyTreeNode):
    """One update, or several along a leading axis.

    Attributes:
        sums: Metrics, as `ChunkSums` of one update.
        episodes: The episodes that its rollout finished.
        shield_rates: Of each group the share of its samples in which a shield intervened, `[]` or `[A]`; None
            without shields.
    """

    sums: ChunkSums
    episodes: EpisodeRows
    shield_rates: tuple[Array | None, ...] = ()


def log_update(groups: Groups, learning: Any, rollouts: tuple[Experience, ...]) -> UpdateLog:  # noqa: ANN401
    """Describe one update."""
    sums = scan_driver.no_sums(groups).add(learning, rollouts)
    return UpdateLog(sums, EpisodeRows.of(rollouts), tuple(map(_shield_rate, rollouts)))


def advance_logged(
    env: GroupedEnv, groups: Groups, steps: int, capacity: int, state: LearnerState, updates: Array
) -> tuple[LearnerState, UpdateLog]:
    """Make up to `capacity` updates and log each; rows behind `updates` stay zero.

    Args:
        env: The environment copies.
        groups: The agents and their learners.
        steps: Steps a rollout.
        capacity: Length of the log, at least 1.
        state: The state before.
        updates: `[]` int32, how many to make; traced, so that one program serves every count.
    """

    def one_update(index: Array, carry: tuple[LearnerState, UpdateLog]) -> tuple[LearnerState, UpdateLog]:
        state, learning, rollouts = scan_driver.update(env, groups, steps, carry[0])
        entry = log_update(groups, learning, rollouts)
        place = partial(_place_row, index)
        return state, jax.tree.map(place, carry[1], entry)

    shapes = jax.eval_shape(lambda state: _logged(env, groups, steps, 0, state)[1], state)
    empty = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), shapes)
    end: tuple[LearnerState, UpdateLog] = lax.fori_loop(0, updates, one_update, (state, empty))
    return end


def finish_logged(
    env: GroupedEnv, groups: Groups, steps: int, surplus: int, state: LearnerState
) -> tuple[LearnerState, UpdateLog]:
    """Make one shorter update, in whose last step the last `surplus` copies rest; the log has one row."""
    state, log = _logged(env, groups, steps, surplus, state)
    return state, jax.tree.map(lambda leaf: leaf[None], log)


def learn_logged(
    groups: Groups,
    agents: Any,  # noqa: ANN401
    fault: Any,  # noqa: ANN401
    rollouts: tuple[Experience, ...],
    keys: Array,
    updates: Array,
    surplus: int,
) -> tuple[Any, Any, UpdateLog]:
    """Learn from a rollout that was collected elsewhere; returns agents, fault and a log of one row."""
    fault = latch_fault(fault, rollouts, updates, scan_driver.categories(groups))
    agents, learning = scan_driver.learn(groups, agents, rollouts, keys, fault, surplus)
    log = log_update(groups, learning, rollouts)
    return agents, fault, jax.tree.map(lambda leaf: leaf[None], log)


def finished_episodes(
    log: UpdateLog, rows: int, agents: tuple[tuple[str, ...], ...], copies: int
) -> list[Any]:
    """List the episodes of a log on the host, in the order in which they ended.

    Args:
        log: NumPy arrays with a leading axis of updates.
        rows: How many updates of it count.
        agents: Names of each group's agents.
        copies: Environment copies.

    Returns:
        One dictionary an episode, as in `rl.base.TrainResult.history`, less its number; its steps are counted
        from the first row of the log.
    """
    episodes = log.episodes
    steps = episodes.ends.shape[1]
    at = np.nonzero(episodes.ends[:rows])
    update, step, copy = at
    ends = (update * steps + step + 1) * copies
    lengths = np.asarray(episodes.lengths)[at]
    columns = (
        copy.tolist(),
        (ends - lengths * copies).tolist(),
        ends.tolist(),
        lengths.tolist(),
        np.asarray(episodes.truncated)[at].tolist(),
        _by_agent(episodes.returns, agents, at),
        _by_agent(episodes.costs, agents, at),
    )
    return [
        {
            "env_index": index,
            "start_step": start,
            "end_step": end,
            "length": length,
            "agent_returns": returns,
            "agent_costs": costs,
            "terminated": not truncated,
            "truncated": truncated,
        }
        for index, start, end, length, truncated, returns, costs in zip(*columns, strict=True)
    ]


def _shield_rate(rollout: Experience) -> Array | None:
    intervened, valid = rollout.outcome.intervened, rollout.outcome.valid
    if intervened is None:
        return None
    counted = jnp.ones(intervened.shape, bool) if valid is None else valid
    axes = (0, counted.ndim - 1)
    rate: Array = (intervened & counted).sum(axes) / counted.sum(axes)
    return rate


def _place_row(index: Array, rows: Array, row: Array) -> Array:
    placed: Array = lax.dynamic_update_index_in_dim(rows, row, index, 0)
    return placed


def _logged(
    env: GroupedEnv, groups: Groups, steps: int, surplus: int, state: LearnerState
) -> tuple[LearnerState, UpdateLog]:
    state, learning, rollouts = scan_driver.update(env, groups, steps, state, surplus)
    return state, log_update(groups, learning, rollouts)


def _by_agent(
    groups: tuple[Any, ...], agents: tuple[tuple[str, ...], ...], at: tuple[np.ndarray, ...]
) -> list[dict[str, float]]:
    """Return for each episode what its agents had of it, from `[U, T, ..., B]` a group."""
    known = [(names, values) for names, values in zip(agents, groups, strict=True) if values is not None]
    names = [name for group, _ in known for name in group]
    update, step, copy = at
    picked = [
        np.asarray(values).reshape(*values.shape[:2], -1, values.shape[-1])[update, step, :, copy]
        for _, values in known
    ]
    if not picked:
        return [{} for _ in update]
    return [dict(zip(names, row, strict=True)) for row in np.concatenate(picked, axis=1).tolist()]


def _first_agent(array: Array) -> Array:
    """Return `[T, B]` of what is equal for all agents of `[T, A, B]`."""
    return array if array.ndim == 2 else array[:, 0]


def _any_agent(flags: Array) -> Array:
    return flags if flags.ndim == 2 else flags.any(1)
