"""The multi-layer perceptron that every actor and critic here is made of.

There are two ways through its layers. Acting has no gradient and takes samples as rows through XLA's
products. Learning takes a kernel of dressage's own for whole towers where this machine has it
(`dressage.kernels`). Where it has not, samples stand in columns: with activations kept as
`[features, samples]` the weight gradient is a product of two row-major matrices along their long axis, which
XLA's CPU backend runs faster than the usual `X.T @ Y`.
"""

import math
from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
from flax import linen as nn
from jax import Array, lax

from dressage.kernels import Layer, Tower, apply_towers, takes
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
    inputs: Array, sizes: tuple[int, ...], activation: str, kernel_init: str, output_gain: float
) -> Array:
    """Stack dense layers in the compact Flax module that calls this, and apply them to act.

    Args:
        inputs: `[..., features]`.
        sizes: Units of each layer, the last one being the output.
        activation: A name in `ACTIVATIONS`, applied after every layer but the last.
        kernel_init: A name in `KERNEL_INITS`.
        output_gain: Gain of the last layer's initialisation.

    Returns:
        `[..., sizes[-1]]`.
    """
    plans = plan_layers(sizes, kernel_init, output_gain)
    tower = grow_tower((Affine(*plan, name=name) for name, plan in plans.items()), inputs.shape[-1])
    return act_tower(inputs, tower, activation)


def plan_layers(
    sizes: tuple[int, ...], kernel_init: str, output_gain: float
) -> dict[str, tuple[int, Initializer]]:
    """Return size and initialiser of a tower's layers by their names in Flax, those of `flax.linen.Dense`.

    Any reader of Flax parameters can use them: `Dense_0/kernel [in, out]`, `Dense_0/bias [out]`, ...
    """
    make_init = KERNEL_INITS[kernel_init]
    hidden = make_init(HIDDEN_GAINS.get(kernel_init, 1.0))
    inits = [hidden] * (len(sizes) - 1) + [make_init(output_gain)]
    return {f"Dense_{place}": plan for place, plan in enumerate(zip(sizes, inits, strict=True))}


def grow_tower(layers: Iterable["Affine"], features: int) -> Tower:
    """Return the parameters of layers that stand one after another behind `features` inputs."""
    tower: list[Layer] = []
    for layer in layers:
        tower.append(layer(features))
        features = layer.size
    return tuple(tower)


def act_tower(inputs: Array, tower: Tower, activation: str) -> Array:
    """Apply a tower to inputs `[..., features]`, to act; returns `[..., out]`."""
    for kernel, bias in tower[:-1]:
        inputs = ACTIVATIONS[activation](inputs @ kernel + bias)
    return inputs @ tower[-1][0] + tower[-1][1]


def learn_towers(inputs: Array, towers: tuple[Tower, ...], activations: tuple[str, ...]) -> tuple[Array, ...]:
    """Apply towers to the same inputs, where a gradient of their parameters is taken.

    Args:
        inputs: `[..., features]`.
        towers: The layers of each.
        activations: The activation of each, a name in `ACTIVATIONS`.

    Returns:
        For each tower `[..., out]`.
    """
    rows = inputs.reshape(-1, inputs.shape[-1])
    if takes(rows, towers, activations):
        outputs = apply_towers(rows, towers, activations)
    else:
        outputs = tuple(_learn_in_columns(rows.T, *both) for both in zip(towers, activations, strict=True))
    return tuple(output.reshape(*inputs.shape[:-1], output.shape[-1]) for output in outputs)


def _learn_in_columns(columns: Array, tower: Tower, activation: str) -> Array:
    for kernel, bias in tower[:-1]:
        columns = ACTIVATIONS[activation](_column_product(kernel, columns) + bias[:, None])
    kernel, bias = tower[-1]
    return (_column_product(kernel, columns) + bias[:, None]).T


class Affine(nn.Module):
    """The parameters of an affine layer."""

    size: int
    kernel_init: Initializer

    @nn.compact
    def __call__(self, features: int) -> Layer:
        """Return kernel `[features, size]` and bias `[size]`."""
        kernel = self.param("kernel", self.kernel_init, (features, self.size))
        return kernel, self.param("bias", nn.initializers.zeros_init(), (self.size,))


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
