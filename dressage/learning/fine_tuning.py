"""Puts what a shipped policy knows into the fresh state of whoever goes on training it."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from dressage.equations.statistics import RunningMoments
from dressage.learning.records import AgentState


def with_policy(fresh: AgentState, params: Mapping[str, Any], moments: RunningMoments | None) -> AgentState:
    """Return a fresh state that acts as a policy does; all else, the optimiser among it, begins anew.

    Args:
        fresh: Its arrays may lead with an axis of seeds, all of which start alike.
        params: The policy's parameters by part; a part that it lacks, such as a critic, stays fresh.
        moments: Statistics of observations; None leaves the fresh ones.
    """
    given = {"params": {**fresh.params["params"], **params}}
    spread = jax.tree.map(_spread, given, fresh.params)
    statistics = fresh.observation_moments
    if moments is not None:
        statistics = jax.tree.map(_spread, moments, statistics)
    state: AgentState = fresh.replace(params=spread, observation_moments=statistics)
    return state


def _spread(given: Array, fresh: Array) -> Array:
    """Copy an array to all seeds; a copy, since training uses up the memory of its state."""
    return jnp.array(jnp.broadcast_to(given, fresh.shape), fresh.dtype)
