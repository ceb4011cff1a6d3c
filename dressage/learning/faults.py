"""Non-finite numbers: found in a rollout under `jit`, latched, and raised on the host."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from dressage.errors import ConfigError, NonFiniteError
from dressage.learning.records import FAULT_FIELDS, Experience, Fault


def latch_fault(
    fault: Fault,
    rollouts: tuple[Experience, ...],
    updates: Array,
    nvecs: tuple[tuple[int, ...], ...] | None = None,
) -> Fault:
    """Return the first non-finite number of a rollout, unless an earlier fault is latched already.

    An action mask that leaves an agent no legal choice is a fault too.

    Args:
        fault: What was latched before.
        rollouts: One `[T, ..., B]` record a group.
        updates: Updates made before this rollout.
        nvecs: Categories of each group's discrete components, by which masks are cut; None takes one.
    """
    first = Fault.none()
    for group, rollout in enumerate(rollouts):
        found = _first_fault(rollout, group, updates, () if nvecs is None else nvecs[group])
        earlier = (found.field > 0) & ((first.field == 0) | (found.step < first.step))
        first = jax.tree.map(partial(jnp.where, earlier), found, first)
    latched = fault.field > 0
    kept: Fault = jax.tree.map(partial(jnp.where, latched), fault, first)
    return kept


def fault_field(code: int | Array) -> str | None:
    """Return what was not finite, by its code in `metrics["fault/field"]`; None for 0, where all is well.

    Args:
        code: A single integer in [0, 6].

    Raises:
        ConfigError: If there is no such code.
    """
    number = int(code)
    if not 0 <= number <= len(FAULT_FIELDS):
        raise ConfigError(f"A code of `fault/field` is in [0, {len(FAULT_FIELDS)}], got {number}.")
    return FAULT_FIELDS[number - 1] if number else None


def raise_fault(
    fault: Fault,
    agents: tuple[tuple[str, ...], ...],
    seeds: tuple[int, ...] = (0,),
    shift: int = 0,
) -> None:
    """Raise what a compiled chunk latched.

    Args:
        fault: The record; its fields have an axis of seeds where there are several.
        agents: Names of the agents of each group.
        seeds: The seeds that are trained side by side.
        shift: What to add to the step latched, where rollouts before were shorter.

    Raises:
        NonFiniteError: If a fault is latched; it names seed, field, agent, environment copy and step.
    """
    if int(np.max(fault.field)) == 0:
        return
    row = int(np.argmax(np.ravel(fault.field) > 0))
    code, group, agent, environment, step = (int(np.ravel(value)[row]) for value in _fields(fault))
    which = f" of seed {seeds[row]}" if len(seeds) > 1 else ""
    field = FAULT_FIELDS[code - 1]
    wrong = "leaves no legal choice" if field == "action mask" else "is not finite"
    raise NonFiniteError(
        f"The {field} of agent {agents[group][agent]!r} {wrong}: "
        f"environment copy {environment}{which}, "
        f"step {step + shift} of that copy (counted from 0 since training began). "
        "Parameters are as they were before that rollout. "
        f"Check the environment's {'masks' if field == 'action mask' else 'dynamics and rewards'} at that "
        "point."
    )


def _first_fault(rollout: Experience, group: int, updates: Array, nvec: tuple[int, ...]) -> Fault:
    outcome = rollout.outcome
    ndim = outcome.rewards.ndim
    broken = _broken_fields(rollout, nvec)
    codes = jnp.array([FAULT_FIELDS.index(name) + 1 for name in broken], jnp.int32)
    flags = [broken[name] for name in broken]
    if outcome.valid is not None:
        flags = [flag & outcome.valid for flag in flags]

    def locate(_: None) -> Fault:
        stacked = jnp.stack(flags, axis=1)  # [T, fields, ..., B]
        flat = jnp.argmax(stacked.ravel())
        steps = stacked.shape[0]
        place = jnp.unravel_index(flat, stacked.shape)
        agent = place[2] if ndim == 3 else jnp.int32(0)
        step = updates * steps + place[0]
        values = (codes[place[1]], jnp.int32(group), agent, place[-1], step)
        return Fault(*(jnp.asarray(value, jnp.int32) for value in values))

    anything = jnp.stack([flag.any() for flag in flags]).any()
    found: Fault = lax.cond(anything, locate, lambda _: Fault.none(), None)
    return found


def _broken_fields(rollout: Experience, nvec: tuple[int, ...]) -> dict[str, Array]:
    """Return, by field, where `[T, ..., B]` something is wrong."""
    outcome, observed = rollout.outcome, rollout.observed
    arrays = {
        "observation": observed.features,
        "final observation": outcome.final_features,
        "reward": outcome.rewards,
        "action": rollout.actions[1] if isinstance(rollout.actions, tuple) else rollout.actions,
    }
    if outcome.costs is not None:
        arrays["cost"] = outcome.costs
    shape = outcome.rewards.shape
    broken = {name: ~jnp.isfinite(array).reshape(*shape, -1).all(-1) for name, array in arrays.items()}
    if observed.action_mask is not None:
        parts = jnp.split(observed.action_mask, np.cumsum(nvec)[:-1], axis=-1)
        broken["action mask"] = ~jnp.stack([part.any(-1) for part in parts]).all(0)
    return broken


def _fields(fault: Fault) -> tuple[Array, ...]:
    return fault.field, fault.group, fault.agent, fault.environment, fault.step
