"""Worker of rejax: PPO with the defaults of its class, evaluations left out.

By default rejax plays 128 evaluation episodes every 4,096 steps, which is most of its time; they are
replaced by nothing here, on both sides, so that training is compared.
"""

from typing import Any

import jax
from protocol import Prepared, compiled, serve, settings
from rejax import PPO

GIVEN = settings()


def no_evaluation(*_: Any) -> tuple[()]:  # noqa: ANN401
    """Stand in for the evaluation."""
    return ()


def prepare() -> Prepared:
    """Compile the whole training program."""
    learner = PPO.create(env=GIVEN["env"], **GIVEN["config"])
    learner = learner.replace(eval_callback=no_evaluation, skip_initial_evaluation=True)
    seeds = GIVEN.get("seeds", 1)
    function = learner.train if seeds == 1 else jax.vmap(learner.train)
    key = jax.random.key(0)
    executable, trace_seconds, compile_seconds = compiled(
        function, key if seeds == 1 else jax.random.split(key, seeds)
    )

    def run(seed: int) -> dict[str, float]:
        key = jax.random.key(seed)
        state, _ = jax.block_until_ready(executable(key if seeds == 1 else jax.random.split(key, seeds)))
        return {"steps": float(state.global_step.sum())}

    return Prepared(
        run, trace_seconds, compile_seconds, ("rejax", "gymnax", "jax", "jaxlib", "flax", "optax")
    )


serve(prepare)
