"""Non-finite numbers: found in a rollout under `jit`, latched, and raised on the host."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dressage.errors import NonFiniteError
from dressage.learning.records import FAULT_FIELDS, Experience, Fault


def latch_fault(fault: Fault, rollouts: tuple[Experience, ...], updates: Array) -> Fault:
    """Return the first non-finite number of a rollout, unless an earlier fault is latched already.

    Args:
        fault: What was latched before.
        rollouts: One `[T, ..., B]` record a group.
        updates: Updates made before this rollout.
    """
    first = Fault.none()
    for group, rollout in enumerate(rollouts):
        found = _first_fault(rollout, group, updates)
        earlier = (found.field > 0) & ((first.field == 0) | (found.step < first.step))
        first = jax.tree.map(partial(jnp.where, earlier), found, first)
    latched = fault.field > 0
    kept: Fault = jax.tree.map(partial(jnp.where, latched), fault, first)
    return kept


def raise_fault(fault: Fault, agents: tuple[tuple[str, ...], ...], seeds: tuple[int, ...] = (0,)) -> None:
    """Raise what a compiled chunk latched.

    Args:
        fault: The record; its fields have an axis of seeds where there are several.
        agents: Names of the agents of each group.
        seeds: The seeds that are trained side by side.

    Raises:
        NonFiniteError: If a fault is latched; it names seed, field, agent, environment copy and step.
    """
    if int(np.max(fault.field)) == 0:
        return
    row = int(np.argmax(np.ravel(fault.field) > 0))
    code, group, agent, environment, step = (int(np.ravel(value)[row]) for value in _fields(fault))
    which = f" of seed {seeds[row]}" if len(seeds) > 1 else ""
    raise NonFiniteError(
        f"The {FAULT_FIELDS[code - 1]} of agent {agents[group][agent]!r} is not finite: "
        f"environment copy {environment}{which}, "
        f"step {step} of that copy (counted from 0 since training began). "
        "Parameters are as they were before that rollout. "
        "Check the environment's dynamics and rewards at that point."
    )


def _first_fault(rollout: Experience, group: int, updates: Array) -> Fault:
    outcome = rollout.outcome
    actions = rollout.actions[1] if isinstance(rollout.actions, tuple) else rollout.actions
    arrays = (rollout.observed.features, outcome.final_features, outcome.rewards, actions)
    ndim = outcome.rewards.ndim
    broken = [~jnp.isfinite(array).reshape(*array.shape[:ndim], -1).all(-1) for array in arrays]
    if outcome.valid is not None:
        broken = [flags & outcome.valid for flags in broken]

    def locate(_: None) -> Fault:
        stacked = jnp.stack(broken, axis=1)  # [T, fields, ..., B]
        flat = jnp.argmax(stacked.ravel())
        steps = stacked.shape[0]
        place = jnp.unravel_index(flat, stacked.shape)
        agent = place[2] if ndim == 3 else jnp.int32(0)
        step = updates * steps + place[0]
        values = (place[1] + 1, jnp.int32(group), agent, place[-1], step)
        return Fault(*(jnp.asarray(value, jnp.int32) for value in values))

    anything = jnp.stack([flags.any() for flags in broken]).any()
    found: Fault = lax.cond(anything, locate, lambda _: Fault.none(), None)
    return found


def _fields(fault: Fault) -> tuple[Array, ...]:
    return fault.field, fault.group, fault.agent, fault.environment, fault.step
