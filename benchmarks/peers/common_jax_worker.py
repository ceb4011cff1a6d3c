"""Worker of the stand-in for the common single-file JAX PPO; runs where dressage runs."""

from functools import partial

import jax
from common_jax_ppo import Sizes, train
from protocol import Prepared, compiled, serve, settings

GIVEN = settings()


def prepare() -> Prepared:
    """Compile the whole training program."""
    updates = -(-GIVEN["total_steps"] // (GIVEN["envs"] * GIVEN["steps"]))
    sizes = Sizes(GIVEN["envs"], GIVEN["steps"], GIVEN["minibatches"], GIVEN["epochs"], updates)
    executable, trace_seconds, compile_seconds = compiled(partial(train, sizes), jax.random.key(0))

    def run(seed: int) -> dict[str, float]:
        _, returns = jax.block_until_ready(executable(jax.random.key(seed)))
        return {"steps": returns.size, "final_return": float(returns[-1, -1].mean())}

    return Prepared(run, trace_seconds, compile_seconds, ("jax", "jaxlib", "gymnax", "flax", "optax"))


serve(prepare)
