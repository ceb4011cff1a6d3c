"""Worker of the stand-in for the common single-file JAX IPPO; runs where dressage runs."""

from functools import partial

import jax
from common_jax_ppo import Sizes
from protocol import Prepared, compiled, serve, settings

GIVEN = settings()


def prepare() -> Prepared:
    """Compile the whole training program."""
    from common_jax_ippo import train  # Here, since JaxMARL prints while it is imported.

    updates = -(-GIVEN["total_steps"] // (GIVEN["envs"] * GIVEN["steps"]))
    sizes = Sizes(GIVEN["envs"], GIVEN["steps"], GIVEN["minibatches"], GIVEN["epochs"], updates)
    executable, trace_seconds, compile_seconds = compiled(
        partial(train, GIVEN["peer_task"], sizes), jax.random.key(0)
    )

    def run(seed: int) -> dict[str, float]:
        _, returns = jax.block_until_ready(executable(jax.random.key(seed)))
        steps = updates * GIVEN["envs"] * GIVEN["steps"]
        return {"steps": steps, "final_return": float(returns[-1, -1].mean())}

    return Prepared(run, trace_seconds, compile_seconds, ("jax", "jaxlib", "jaxmarl", "flax", "optax"))


serve(prepare)
