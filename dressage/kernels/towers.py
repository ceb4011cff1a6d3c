"""Towers of dense layers with their gradient, by the kernel: all in one call forward and one backward."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dressage.kernels.calls import BACKWARD, FORWARD, kernel, registered

Layer: TypeAlias = tuple[Array, Array]
"""A dense layer: kernel `[in, out]` and bias `[out]`."""

Tower: TypeAlias = tuple[Layer, ...]
"""Layers one after another, with an activation after each but the last."""

ACTIVATIONS = {"tanh": 0, "relu": 1}
"""Those that the kernel has, with its number for each."""

LANE = 16
"""The kernel rounds the width of a hidden layer up to a multiple of this."""


def takes(inputs: Array, towers: tuple[Tower, ...], activations: tuple[str, ...]) -> bool:
    """Say whether the kernel is there for such towers: float32, with hidden layers of a kind that it has."""
    arrays = (inputs, *jax.tree.leaves(towers))
    known = all(activation in ACTIVATIONS for activation in activations)
    deep = all(len(tower) > 1 for tower in towers)
    plain = inputs.ndim == 2 and all(array.dtype == jnp.float32 and array.size > 0 for array in arrays)
    return known and deep and plain and registered()


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def apply_towers(inputs: Array, towers: tuple[Tower, ...], activations: tuple[str, ...]) -> tuple[Array, ...]:
    """Apply towers to the same inputs, where `takes` says that the kernel can.

    Copies that `jax.vmap` makes, of seeds or of agents, go through one call. There is a first derivative, in
    reverse mode alone. Results do not depend on the number of threads.

    Args:
        inputs: `[samples, features]` float32.
        towers: Each at least two layers, float32.
        activations: The activation of each tower, a name in `ACTIVATIONS`.

    Returns:
        For each tower `[samples, out]`.
    """
    return _forward(inputs, towers, activations, keep=False)[0]


def _forward(
    inputs: Array, towers: tuple[Tower, ...], activations: tuple[str, ...], keep: bool
) -> tuple[tuple[Array, ...], tuple[tuple[Array, ...], ...]]:
    """Return the outputs of each tower and, to keep, the values of its hidden layers.

    The latter are `[samples, rounded width]`.
    """
    samples = inputs.shape[0]
    shapes = []
    for tower in towers:
        shapes.append((tower[-1][0].shape[1], samples))
        hidden_layers = tower[:-1] if keep else ()
        shapes += [(samples, math.ceil(weight.shape[1] / LANE) * LANE) for weight, _ in hidden_layers]
    layers = [array for tower in towers for weight, bias in tower for array in (weight.T, bias)]
    call = partial(_call, FORWARD, towers=towers, activations=activations)
    found = iter(call(shapes=shapes, arguments=[inputs, *layers]))
    outputs, hidden = [], []
    for tower in towers:
        outputs.append(next(found).T)
        hidden.append(tuple(next(found) for _ in tower[:-1] if keep))
    return tuple(outputs), tuple(hidden)


def _keep(
    inputs: Array, towers: tuple[Tower, ...], activations: tuple[str, ...]
) -> tuple[tuple[Array, ...], Any]:
    """Go forward, keeping what the way back needs."""
    outputs, hidden = _forward(inputs, towers, activations, keep=True)
    return outputs, (inputs, towers, hidden)


def _return(activations: tuple[str, ...], kept: Any, slopes: tuple[Array, ...]) -> tuple[Array, Any]:  # noqa: ANN401
    """Return the gradients of inputs and towers."""
    inputs, towers, hidden = kept
    weights = [weight.T for tower in towers for weight, _ in tower]
    shapes = [array.shape for tower in towers for weight, bias in tower for array in (weight.T, bias)]
    arguments = [inputs, *weights, *jax.tree.leaves(hidden), *(slope.T for slope in slopes)]
    call = partial(_call, BACKWARD, arguments=arguments, towers=towers, activations=activations)
    found = iter(call(shapes=shapes, input_slopes=False))
    gradients = tuple(tuple((next(found).T, next(found)) for _ in tower) for tower in towers)
    # A call of its own, which XLA leaves out where nobody asks for the inputs' gradient.
    parts = call(shapes=shapes + [inputs.shape] * len(towers), input_slopes=True)[-len(towers) :]
    return sum(parts[1:], start=parts[0]), gradients


def _call(
    name: str,
    *,
    shapes: Sequence[tuple[int, ...]],
    arguments: list[Array],
    towers: tuple[Tower, ...],
    activations: tuple[str, ...],
    input_slopes: bool | None = None,
) -> Any:  # noqa: ANN401 (a list of arrays)
    results = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    call = kernel(name, results)
    depths = np.array([len(tower) for tower in towers], np.int64)
    kinds = np.array([ACTIVATIONS[activation] for activation in activations], np.int64)
    wish = {} if input_slopes is None else {"input_slopes": input_slopes}
    return call(*arguments, depths=depths, activations=kinds, **wish)


apply_towers.defvjp(_keep, _return)
