"""Worker of dressage's IPPO over a functional environment."""

import time

from protocol import Prepared, serve, settings

from dressage import envs
from dressage.rl.ippo import IPPO

GIVEN = settings()


def prepare() -> Prepared:
    """Compile by a first short training; the measured ones go on from it with the same program."""
    env = envs.make(GIVEN["task"], **GIVEN.get("task_options", {}))
    learner = IPPO(
        {
            "num_envs": GIVEN["envs"],
            "rollout_length": GIVEN["steps"],
            "mini_batches": GIVEN["minibatches"],
            "learning_epochs": GIVEN["epochs"],
            "share_parameters": GIVEN.get("shared", True),
            "history_limit": 1000,
        }
    )
    start = time.perf_counter()
    learner.train(env, GIVEN["envs"] * GIVEN["steps"])
    compile_seconds = time.perf_counter() - start
    updates = -(-GIVEN["total_steps"] // (GIVEN["envs"] * GIVEN["steps"]))

    def run(seed: int) -> dict[str, float]:
        del seed  # Training goes on: another seed would do the same work.
        steps = updates * GIVEN["envs"] * GIVEN["steps"]
        result = learner.train(env, steps)
        metrics = next(iter(result.metrics.values()))
        return {"steps": steps, "final_return": metrics[-1]["episode_return"]}

    return Prepared(run, 0.0, compile_seconds, ("jax", "jaxlib", "flax", "optax"))


serve(prepare)
