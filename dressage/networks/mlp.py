"""The multi-layer perceptron that every actor and critic here is made of.

Samples are rows at its door. Inside they may stand in columns: with activations kept as `[features, samples]`
the weight gradient is a product of two row-major matrices along their long axis, which XLA's CPU backend runs
faster than the usual `X.T @ Y`; only the narrow ends of the network are transposed. Acting has no gradient
and is faster with samples in rows, so the caller says which.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array, lax

from dressage.networks.orthogonal import orthogonal

Initializer = jax.nn.initializers.Initializer

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "elu": jax.nn.elu,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "softplus": jax.nn.softplus,
}

KERNEL_INITS: dict[str, Callable[[float], Initializer]] = {
    "xavier_uniform": lambda gain: nn.initializers.variance_scaling(gain**2, "fan_avg", "uniform"),
    "xavier_normal": lambda gain: nn.initializers.variance_scaling(gain**2, "fan_avg", "truncated_normal"),
    "lecun_uniform": lambda gain: nn.initializers.variance_scaling(gain**2, "fan_in", "uniform"),
    "lecun_normal": lambda gain: nn.initializers.variance_scaling(gain**2, "fan_in", "truncated_normal"),
    "kaiming_uniform": lambda gain: nn.initializers.variance_scaling(2.0 * gain**2, "fan_in", "uniform"),
    "kaiming_normal": lambda gain: nn.initializers.variance_scaling(
        2.0 * gain**2, "fan_in", "truncated_normal"
    ),
    "orthogonal": orthogonal,
}

HIDDEN_GAINS = {"orthogonal": math.sqrt(2.0)}


class MLP(nn.Module):
    """A perceptron with equal activations after every hidden layer and none after the last.

    Attributes:
        hidden_sizes: Units of each hidden layer.
        output_size: Units of the last layer.
        activation: A name in `ACTIVATIONS`.
        kernel_init: A name in `KERNEL_INITS`.
        output_gain: Gain of the last layer's initialisation (0.01 for a policy, 1 for a value).
    """

    hidden_sizes: tuple[int, ...]
    output_size: int
    activation: str = "tanh"
    kernel_init: str = "orthogonal"
    output_gain: float = 1.0

    @nn.compact
    def __call__(self, inputs: Array) -> Array:
        """Map `inputs` `[..., features]` to outputs `[..., output_size]`."""
        sizes = (*self.hidden_sizes, self.output_size)
        return perceptron(inputs, sizes, self.activation, self.kernel_init, self.output_gain)


def perceptron(
    inputs: Array,
    sizes: tuple[int, ...],
    activation: str,
    kernel_init: str,
    output_gain: float,
    *,
    columns: bool = False,
) -> Array:
    """Stack dense layers in the compact Flax module that calls this.

    Parameters are named and shaped as those of `flax.linen.Dense` (`Dense_0/kernel [in, out]`,
    `Dense_0/bias [out]`, ...), directly under the calling module's name, so that any reader of Flax
    parameters can use them.

    Args:
        inputs: `[..., features]`.
        sizes: Units of each layer, the last one being the output.
        activation: A name in `ACTIVATIONS`, applied after every layer but the last.
        kernel_init: A name in `KERNEL_INITS`.
        output_gain: Gain of the last layer's initialisation.
        columns: Whether samples stand in columns inside; pays where a gradient is taken.

    Returns:
        `[..., sizes[-1]]`.
    """
    make_init = KERNEL_INITS[kernel_init]
    hidden_init = make_init(HIDDEN_GAINS.get(kernel_init, 1.0))
    activate = ACTIVATIONS[activation]
    values = inputs.reshape(-1, inputs.shape[-1]).T if columns else inputs
    for layer, size in enumerate(sizes[:-1]):
        values = activate(_Dense(size, hidden_init, columns, name=f"Dense_{layer}")(values))
    values = _Dense(sizes[-1], make_init(output_gain), columns, name=f"Dense_{len(sizes) - 1}")(values)
    return values.T.reshape(*inputs.shape[:-1], sizes[-1]) if columns else values


class _Dense(nn.Module):
    """An affine layer over samples in rows `[..., in]` or in columns `[in, samples]`."""

    size: int
    kernel_init: Initializer
    columns: bool

    @nn.compact
    def __call__(self, values: Array) -> Array:
        kernel = self.param("kernel", self.kernel_init, (values.shape[0 if self.columns else -1], self.size))
        bias = self.param("bias", nn.initializers.zeros_init(), (self.size,))
        if not self.columns:
            return values @ kernel + bias
        return _column_product(kernel, values) + bias[:, None]


@jax.custom_vjp
def _column_product(kernel: Array, columns: Array) -> Array:
    """Multiply `columns` `[in, samples]` by the transposed `kernel` `[in, out]`; returns `[out, samples]`."""
    return lax.dot_general(kernel, columns, (((0,), (0,)), ((), ())))


def _forward_product(kernel: Array, columns: Array) -> tuple[Array, tuple[Array, Array]]:
    return _column_product(kernel, columns), (kernel, columns)


def _backward_product(saved: tuple[Array, Array], cotangent: Array) -> tuple[Array, Array]:
    """Both gradients as products of row-major matrices, which is what XLA's fast kernels take.

    The barriers keep XLA from folding transpositions into the products: those forms go to a slower kernel,
    which hands half of a few microseconds' work to a second core.
    """
    kernel, columns = saved
    kernel_gradient = lax.dot_general(cotangent, columns, (((1,), (1,)), ((), ()))).T
    return kernel_gradient, lax.optimization_barrier(kernel) @ cotangent


_column_product.defvjp(_forward_product, _backward_product)
