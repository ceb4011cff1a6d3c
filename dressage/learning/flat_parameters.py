"""Parameters as one flat vector, on which clipping and Adam are a handful of operations.

Matrices are stored transposed in the vector: networks that keep samples in columns multiply by the transposed
kernel, and its gradient then comes out of XLA's fast product without a transposition.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax
from jax.flatten_util import ravel_pytree

ADAM_EPSILON = 1e-5  # Huang et al. 2022, "The 37 implementation details of PPO", detail 3.

ADAM_DECAYS = (0.9, 0.999)  # Of the mean gradient and of its mean square; those of the reference.

FLAT_ADAM = optax.scale_by_adam(*ADAM_DECAYS, eps=ADAM_EPSILON)


def ravel_parameters(params: Any) -> tuple[Array, Callable[[Array], Any]]:  # noqa: ANN401 (any tree of parameters)
    """Lay parameters out as one vector `[P]`.

    Returns:
        The vector, and the function that gives the tree back.
    """
    flat, unravel = ravel_pytree(_transpose_matrices(params))
    return flat, lambda vector: _transpose_matrices(unravel(vector))


def step_adam(
    gradient: Array, state: optax.ScaleByAdamState, applied: Array
) -> tuple[Array, optax.ScaleByAdamState]:
    r"""Step Adam's moments by one gradient, or leave them as they are.

    $$m' = \beta_1 m + (1-\beta_1) g, \quad v' = \beta_2 v + (1-\beta_2) g^2, \quad
      d = \frac{m'/(1-\beta_1^t)}{\sqrt{v'/(1-\beta_2^t)} + \epsilon}$$

    The same as `FLAT_ADAM`, with the choice made where moments are written: chosen afterwards, the old ones
    must be kept until the direction is known, which copies them in each step.

    Args:
        gradient: `[P]`.
        state: Count and moments `[P]` before.
        applied: `[]` bool; False leaves the state, whatever the gradient holds.

    Returns:
        The direction `[P]`, to be subtracted, meaningless where nothing was applied; and the state after.

    Reference:
        Kingma and Ba 2015, "Adam: A Method for Stochastic Optimization", algorithm 1.
    """
    first, second = ADAM_DECAYS
    count = state.count + applied
    mean = jnp.where(applied, first * state.mu + (1 - first) * gradient, state.mu)
    square = jnp.where(applied, second * state.nu + (1 - second) * gradient**2, state.nu)
    mean, square = lax.optimization_barrier((mean, square))
    direction = (mean / (1 - first**count)) / (jnp.sqrt(square / (1 - second**count)) + ADAM_EPSILON)
    return direction, optax.ScaleByAdamState(count, mean, square)


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
