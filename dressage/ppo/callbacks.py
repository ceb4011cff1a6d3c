"""Host callbacks that arrive in order, also under `vmap`."""

from typing import Any

import jax
from jax.custom_batching import custom_vmap
from jax.experimental import io_callback

from dressage.ppo.config import Config


def host_callback(config: Config, metrics: dict[str, Any]) -> None:
    """Call `config.EVAL_METRICS_HOST_CB` from inside a compiled program, once and in order.

    Under `vmap` the callback is called once with the batch axis in front of every array, not once an element: JAX
    refuses ordered callbacks under `vmap`, so the batching rule is our own.
    """
    if not config.VERBOSE and type(config).EVAL_METRICS_HOST_CB is Config.EVAL_METRICS_HOST_CB:
        return

    def call(metrics: dict[str, Any]) -> None:
        config.EVAL_METRICS_HOST_CB(metrics)

    @custom_vmap
    def emit(metrics: dict[str, Any]) -> tuple[()]:
        io_callback(call, None, metrics, ordered=True)
        return ()

    @emit.def_vmap
    def emit_batch(axis_size: int, batched: list[Any], metrics: dict[str, Any]) -> tuple[tuple[()], tuple[()]]:
        whole = jax.tree.map(
            lambda leaf, has_axis: leaf if has_axis else jax.numpy.broadcast_to(leaf, (axis_size, *leaf.shape)),
            metrics,
            batched[0],
        )
        return emit(whole), ()

    emit(metrics)
