"""Makes the kernels known to XLA."""

from functools import cache

import jax

from dressage.kernels.building import kernels

FORWARD, BACKWARD = "dressage_forward", "dressage_backward"
GATHER, DRAW = "dressage_gather", "dressage_draw"


def registered() -> bool:
    """Say whether programs traced now can call the kernels: there are some, and JAX runs on the CPU."""
    return jax.default_backend() == "cpu" and _register()


@cache
def _register() -> bool:
    library = kernels().library
    if library is None:
        return False
    for name in (FORWARD, BACKWARD, GATHER, DRAW):
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(library, name)), platform="cpu")
    return True
