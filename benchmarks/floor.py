"""The floor: how fast this machine could step PPO on CartPole if it did nothing but the networks' arithmetic.

Two numbers make it. The first counts the arithmetic that an environment step cannot do without: one pass
forward through actor and critic when acting, and forward and backward through both in every epoch. The
second is the rate at which XLA multiplies matrices of these very sizes: a chain of products of 8192 x 64 by
64 x 64 matrices with a tanh after each. Their quotient is the floor in steps per second; what dressage
reaches is told as a share of it.

    python benchmarks/floor.py
"""

import argparse
import time
from collections.abc import Sequence
from statistics import median

import jax
import jax.numpy as jnp
from jax import Array

ROWS, WIDTH, LAYERS = 8192, 64, 16
SQUARE = 2048


def layer_flops(inputs: int, outputs: int) -> int:
    """Operations of one dense layer on one sample: a multiplication and an addition a weight."""
    return 2 * inputs * outputs


def forward_flops(sizes: Sequence[int]) -> int:
    """Operations of one pass forward of a perceptron, on one sample.

    Args:
        sizes: Units of every layer, the input first.
    """
    return sum(layer_flops(inputs, outputs) for inputs, outputs in zip(sizes, sizes[1:], strict=False))


def gradient_flops(sizes: Sequence[int]) -> int:
    """Operations forward and backward on one sample; nobody needs the gradient of the observation."""
    return 3 * forward_flops(sizes) - layer_flops(sizes[0], sizes[1])


def ppo_flops(obs_dim: int, actions: int, hidden: Sequence[int], epochs: int) -> int:
    """Operations of PPO an environment step: act and value once, then `epochs` gradients of both networks."""
    networks = ([obs_dim, *hidden, actions], [obs_dim, *hidden, 1])
    return sum(forward_flops(sizes) + epochs * gradient_flops(sizes) for sizes in networks)


CARTPOLE_FLOPS = ppo_flops(obs_dim=4, actions=2, hidden=(64, 64), epochs=4)


def chain(features: Array, weights: Array) -> Array:
    """Multiply `[8192, 64]` features by each of `[layers, 64, 64]` weights, with tanh after each product."""
    for weight in weights:
        features = jnp.tanh(features @ weight)
    return features


class FloorMeter:
    """Measures the two rates, compiled once."""

    def __init__(self) -> None:
        keys = jax.random.split(jax.random.key(0), 3)
        self._features = jax.random.normal(keys[0], (ROWS, WIDTH))
        self._weights = jax.random.normal(keys[1], (LAYERS, WIDTH, WIDTH)) / WIDTH**0.5
        self._square = jax.random.normal(keys[2], (SQUARE, SQUARE))
        self._chain = jax.jit(chain).lower(self._features, self._weights).compile()
        self._product = jax.jit(jnp.matmul).lower(self._square, self._square).compile()

    def chain_rate(self, calls: int = 100) -> float:
        """Return the median rate of the chain over so many calls, in FLOP/s."""
        flops = LAYERS * ROWS * layer_flops(WIDTH, WIDTH)
        return flops / median(_seconds(self._chain, self._features, self._weights) for _ in range(calls))

    def product_rate(self, calls: int = 10) -> float:
        """Return the median rate of one large square product, in FLOP/s: the most that XLA reaches here."""
        return (
            2 * SQUARE**3 / median(_seconds(self._product, self._square, self._square) for _ in range(calls))
        )


def _seconds(executable: jax.stages.Compiled, *arguments: Array) -> float:
    start = time.perf_counter()
    jax.block_until_ready(executable(*arguments))
    return time.perf_counter() - start


def main() -> None:
    """Print the floor of this machine, now."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=300, help="calls of the chain; the median counts")
    calls = parser.parse_args().calls
    meter = FloorMeter()
    rate, most = meter.chain_rate(calls), meter.product_rate()
    acting, learning = (
        ppo_flops(4, 2, (64, 64), 0),
        ppo_flops(4, 2, (64, 64), 1) - ppo_flops(4, 2, (64, 64), 0),
    )
    print(f"An environment step of CartPole, two 64-64 networks: {acting:,} FLOP to act and value,")
    print(f"  4 x {learning:,} FLOP to learn, {CARTPOLE_FLOPS:,} FLOP together")
    print(f"Chain of {ROWS} x {WIDTH} by {WIDTH} x {WIDTH} with tanh: {rate / 1e9:.0f} GFLOP/s")
    print(f"One {SQUARE} x {SQUARE} product:                {most / 1e9:.0f} GFLOP/s")
    print(f"Floor: {rate / CARTPOLE_FLOPS:,.0f} environment steps a second")


if __name__ == "__main__":
    main()
