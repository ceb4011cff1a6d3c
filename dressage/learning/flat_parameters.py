"""Parameters as one flat vector, on which clipping and Adam are a handful of operations.

Matrices are stored transposed in the vector: networks that keep samples in columns multiply by the transposed
kernel, and its gradient then comes out of XLA's fast product without a transposition.
"""

from collections.abc import Callable
from typing import Any

import jax
import optax
from jax import Array
from jax.flatten_util import ravel_pytree

ADAM_EPSILON = 1e-5  # Huang et al. 2022, "The 37 implementation details of PPO", detail 3.

FLAT_ADAM = optax.scale_by_adam(eps=ADAM_EPSILON)


def ravel_parameters(params: Any) -> tuple[Array, Callable[[Array], Any]]:  # noqa: ANN401 (any tree of parameters)
    """Lay parameters out as one vector `[P]`.

    Returns:
        The vector, and the function that gives the tree back.
    """
    flat, unravel = ravel_pytree(_transpose_matrices(params))
    return flat, lambda vector: _transpose_matrices(unravel(vector))


def _init(params: Any) -> optax.OptState:  # noqa: ANN401
    return FLAT_ADAM.init(ravel_parameters(params)[0])


def _update(updates: Any, state: optax.OptState, params: Any = None) -> tuple[Any, optax.OptState]:  # noqa: ANN401
    flat, unravel = ravel_parameters(updates)
    direction, state = FLAT_ADAM.update(flat, state)
    return unravel(direction), state


# The same optimiser for trees, with the flat optimiser's state. One object for all: a TrainState holds it as
# static structure, which compares by identity.
OPTIMIZER = optax.GradientTransformation(_init, _update)


def _transpose_matrices(params: Any) -> Any:  # noqa: ANN401
    return jax.tree.map(lambda leaf: leaf.T if leaf.ndim == 2 else leaf, params)
