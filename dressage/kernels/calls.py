"""Makes the kernels known to XLA."""

from collections.abc import Callable
from functools import cache
from typing import Any

import jax

from dressage.kernels.building import kernels

FORWARD, BACKWARD = "dressage_forward", "dressage_backward"
GATHER, DRAW = "dressage_gather", "dressage_draw"


def registered() -> bool:
    """Say whether programs traced now can call the kernels: there are some, and JAX runs on the CPU."""
    return jax.default_backend() == "cpu" and _register()


def kernel(name: str, results: Any) -> Callable[..., Any]:  # noqa: ANN401 (shapes as `jax.ffi` takes them)
    """Return a kernel as a function of arrays; copies that `jax.vmap` makes go through one call.

    Raises:
        RuntimeError: If there is none; whoever can do without asks `registered` first.
    """
    if not registered():
        raise RuntimeError(f"{name} needs a CPU and a compiled kernel: {kernels().about}.")
    call: Callable[..., Any] = jax.ffi.ffi_call(name, results, vmap_method="broadcast_all")
    return call


@cache
def _register() -> bool:
    library = kernels().library
    if library is None:
        return False
    for name in (FORWARD, BACKWARD, GATHER, DRAW):
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(library, name)), platform="cpu")
    return True
