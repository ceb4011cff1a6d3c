"""Host callbacks that arrive in order, also under `vmap`."""

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.custom_batching import custom_vmap
from jax.experimental import io_callback

from dressage.ppo.config import Config

Named = dict[str, Any]


def evaluation_callback(config: Config, metrics: Named) -> None:
    """Call `config.EVAL_METRICS_HOST_CB` from inside a compiled program, once an evaluation and in order."""
    if config.VERBOSE or type(config).EVAL_METRICS_HOST_CB is not Config.EVAL_METRICS_HOST_CB:
        call_in_order(_report_evaluation, (config, metrics))


def update_callback(config: Config, made: Array, updates: Array, metrics: Named) -> None:
    """Print the metrics of one update from inside a compiled program, where `DEBUG` asks for it.

    Args:
        config: The configuration.
        made: `[]` int32, 1 where an update was made and 0 where there is nothing to print.
        updates: `[]` int32, updates since training began.
        metrics: The update's metrics.
    """
    if config.DEBUG:
        call_in_order(_print_update, (made, updates, metrics))


def call_in_order(function: Callable[[Any], None], argument: Any) -> None:  # noqa: ANN401 (any tree of arrays)
    """Call a function of the host from inside a compiled program, after all such calls before it.

    Under `vmap` it is called once, with the batch axis in front of every array, not once an element: JAX
    refuses ordered callbacks under `vmap`, so the batching rule is our own.

    Args:
        function: Called with `argument` as NumPy arrays.
        argument: A tree of arrays and numbers.
    """

    @custom_vmap
    def emit(argument: Any) -> tuple[()]:  # noqa: ANN401
        io_callback(function, None, argument, ordered=True)
        return ()

    @emit.def_vmap
    def emit_batch(size: int, batched: list[Any], argument: Any) -> tuple[tuple[()], tuple[()]]:  # noqa: ANN401
        whole = jax.tree.map(lambda leaf, has: leaf if has else _repeat(leaf, size), argument, batched[0])
        return emit(whole), ()

    emit(jax.tree.map(jnp.asarray, argument))


def _repeat(leaf: Array | float, size: int) -> Array:
    return jnp.broadcast_to(leaf, (size, *jnp.shape(leaf)))


def _report_evaluation(argument: tuple[Config, Named]) -> None:
    config, metrics = jax.tree.map(np.asarray, argument)
    config.EVAL_METRICS_HOST_CB(metrics)


def _print_update(argument: tuple[Array, Array, Named]) -> None:
    made, updates, metrics = argument
    if not np.any(made):
        return
    parts = [
        f"{name} {np.array2string(np.asarray(values), precision=5)}"
        for name, values in sorted(metrics.items())
    ]
    sys.stdout.write(" | ".join([f"update {int(np.max(updates)):>6,d}", *parts]) + "\n")
    sys.stdout.flush()
