"""How a policy in training is asked for what its exported graph computes, in float32 and in float64."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dressage.equations.distributions import AugmentedAction, Categorical, FactoredCategorical
from dressage.learning.graph_building import OBSERVATION, PROBABILITIES
from dressage.learning.policy_graph import Arrays
from dressage.learning.policy_head import Distribution
from dressage.learning.specs import ObservationLayout

Outputs = Callable[[Any, dict[str, Any]], dict[str, Any]]
"""A jitted function of a policy's tree and a graph's inputs."""


def in_float32(function: Outputs, policy: Any, inputs: Arrays) -> Arrays:  # noqa: ANN401 (any tree of arrays)
    """Let the policy act as it does in training."""
    return _as_numpy(function(policy, inputs))


def in_float64(function: Outputs, policy: Any, inputs: Arrays) -> Arrays:  # noqa: ANN401
    """Let the policy act by the same code in float64."""
    with jax.enable_x64(True):
        return _as_numpy(function(_widened(policy), _widened(inputs)))


def observation_tree(layout: ObservationLayout, inputs: Mapping[str, Any], name: str = OBSERVATION) -> Any:  # noqa: ANN401 (an array, or a dict or tuple of them)
    """Put the inputs of a graph together to the observation that the environment would give."""
    if layout.kind == "dict":
        return {key: observation_tree(part, inputs, f"{name}.{key}") for key, part in layout.parts}
    if layout.kind == "tuple":
        return tuple(observation_tree(part, inputs, f"{name}.{key}") for key, part in layout.parts)
    return inputs[name]


def named_probabilities(distribution: Distribution) -> dict[str, Array]:
    """Name the probabilities of a distribution's discrete components as a graph does; none for a Gaussian."""
    if isinstance(distribution, Categorical):
        return {PROBABILITIES: distribution.probs}
    if not isinstance(distribution, FactoredCategorical | AugmentedAction):
        return {}
    parts = distribution.component_probs()
    if len(parts) == 1:
        return {PROBABILITIES: parts[0]}
    return {f"{PROBABILITIES}_{component}": probs for component, probs in enumerate(parts)}


def _widened(tree: Any) -> Any:  # noqa: ANN401
    def widen(leaf: Any) -> Any:  # noqa: ANN401
        array = np.asarray(leaf)
        return jnp.asarray(array, jnp.float64) if np.issubdtype(array.dtype, np.floating) else leaf

    return jax.tree.map(widen, tree)


def _as_numpy(outputs: Mapping[str, Any]) -> Arrays:
    arrays = {name: np.asarray(array) for name, array in outputs.items()}
    return {name: a.astype(np.int64) if a.dtype.kind == "i" else a for name, a in arrays.items()}
