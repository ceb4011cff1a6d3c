"""Towers of dense layers with their gradient, by the kernel: all in one call forward and one backward."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.custom_derivatives import CustomVJPPrimal, SymbolicZero

from dressage.kernels.calls import BACKWARD, FORWARD, registered

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
    plain = inputs.ndim == 2 and min(inputs.shape) > 0 and all(array.dtype == jnp.float32 for array in arrays)
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
        shapes += [(samples, math.ceil(kernel.shape[1] / LANE) * LANE) for kernel, _ in hidden_layers]
    layers = [array for tower in towers for kernel, bias in tower for array in (kernel.T, bias)]
    found = iter(_call(FORWARD, shapes, [inputs, *layers], towers, activations))
    outputs, hidden = [], []
    for tower in towers:
        outputs.append(next(found).T)
        hidden.append(tuple(next(found) for _ in tower[:-1] if keep))
    return tuple(outputs), tuple(hidden)


def _keep(inputs: Any, towers: Any, activations: tuple[str, ...]) -> tuple[tuple[Array, ...], Any]:  # noqa: ANN401
    """Go forward, keeping what the way back needs."""
    wanted = inputs.perturbed
    values, layers = jax.tree.map(
        lambda primal: primal.value,
        (inputs, towers),
        is_leaf=lambda leaf: isinstance(leaf, CustomVJPPrimal),
    )
    outputs, hidden = _forward(values, layers, activations, keep=True)
    # Whether the inputs have a gradient is known while tracing, so it goes on as structure.
    return outputs, (values, layers, hidden, () if wanted else None)


def _return(activations: tuple[str, ...], kept: Any, slopes: Any) -> tuple[Array | None, Any]:  # noqa: ANN401
    """Return the gradients of inputs and towers."""
    inputs, towers, hidden, wanted = kept
    slopes = [jnp.zeros(s.shape[::-1], jnp.float32) if isinstance(s, SymbolicZero) else s.T for s in slopes]
    kernels_of = [kernel.T for tower in towers for kernel, _ in tower]
    shapes = [array.shape for tower in towers for kernel, bias in tower for array in (kernel.T, bias)]
    input_shapes = [] if wanted is None else [inputs.shape] * len(towers)
    arguments = [inputs, *kernels_of, *jax.tree.leaves(hidden), *slopes]
    call = partial(_call, BACKWARD, shapes + input_shapes, arguments, towers, activations)
    found = iter(call(input_slopes=wanted is not None))
    gradients = tuple(tuple((next(found).T, next(found)) for _ in tower) for tower in towers)
    return (None if wanted is None else sum(found, start=jnp.zeros(()))), gradients


def _call(
    name: str,
    shapes: Sequence[tuple[int, ...]],
    arguments: list[Array],
    towers: tuple[Tower, ...],
    activations: tuple[str, ...],
    *,
    input_slopes: bool | None = None,
) -> Any:  # noqa: ANN401 (a list of arrays)
    results = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    call = jax.ffi.ffi_call(name, results, vmap_method="broadcast_all")
    depths = np.array([len(tower) for tower in towers], np.int64)
    kinds = np.array([ACTIVATIONS[activation] for activation in activations], np.int64)
    wish = {} if input_slopes is None else {"input_slopes": input_slopes}
    return call(*arguments, depths=depths, activations=kinds, **wish)


apply_towers.defvjp(_keep, _return, symbolic_zeros=True)
