"""Worker of dressage itself: `ppo.train` as one program, or in chunks as the command line runs it.

Settings: `task` (a name that `envs.make` knows) and `config` (fields of `ppo.Config`); if wanted, `via`
("train" or "trainer" for chunks), `seeds` (that many trained at once by `vmap`), `cache` (folder of the
persistent compilation cache) and `cpus`.
"""

import time
from collections.abc import Callable
from typing import Any

from protocol import Prepared, Settings, compiled, serve, settings

GIVEN = settings()

import jax  # noqa: E402 (the processors are chosen before)
import numpy as np  # noqa: E402

from dressage import envs, ppo  # noqa: E402

PACKAGES = ("dressage", "jax", "jaxlib", "flax", "optax")
CHUNKS = 10  # As many advances as `train` makes evaluations by default.


def prepare(given: Settings = GIVEN) -> Prepared:
    """Compile what is to be measured."""
    if given.get("cache"):
        jax.config.update("jax_compilation_cache_dir", given["cache"])
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    env = envs.make(given["task"])
    config = ppo.Config.from_mapping({"VERBOSE": False, **given["config"]})
    by_way = {"train": _by_train, "trainer": _by_trainer}
    run, trace_seconds, compile_seconds = by_way[given.get("via", "train")](
        env, config, given.get("seeds", 1)
    )
    return Prepared(run, trace_seconds, compile_seconds, PACKAGES)


Measured = tuple[Callable[[int], dict[str, float]], float, float]


def _by_train(env: envs.BaseEnv, config: ppo.Config, seeds: int) -> Measured:
    def train(config: ppo.Config, key: jax.Array) -> ppo.PPOResult:
        if seeds == 1:
            return ppo.train(env, config, key)
        return jax.vmap(lambda one: ppo.train(env, config, one))(jax.random.split(key, seeds))

    executable, trace_seconds, compile_seconds = compiled(
        train, config, jax.random.key(0), options=ppo.compiler_options(seeds * config.MINIBATCH_SIZE)
    )

    def run(seed: int) -> dict[str, float]:
        result = jax.block_until_ready(executable(config, jax.random.key(seed)))
        return _numbers(result.metrics, config.NUM_TIMESTEPS * seeds)

    return run, trace_seconds, compile_seconds


def _by_trainer(env: envs.BaseEnv, config: ppo.Config, seeds: int) -> Measured:
    """Run as the command line does: a host loop over compiled chunks, evaluations between them.

    The seeds are fixed when the trainer is made, so that every measured run repeats the same one.
    """
    start = time.perf_counter()
    trainer = ppo.make_trainer(env, config, seeds=tuple(range(seeds)))
    state, _ = trainer.advance(trainer.init(), 1)
    if config.NUM_EVAL_ENVS:
        trainer.evaluate(state)
    compile_seconds = time.perf_counter() - start
    marks = np.linspace(0, trainer.num_updates, min(CHUNKS, trainer.num_updates) + 1).astype(int)

    def run(_: int) -> dict[str, float]:
        state = trainer.init()
        metrics: dict[str, Any] = {}
        for updates in np.diff(marks):
            state, metrics = trainer.advance(state, int(updates))
            if config.NUM_EVAL_ENVS:
                trainer.evaluate(state)
        return _numbers(metrics, trainer.num_updates * trainer.steps_per_update * seeds)

    return run, 0.0, compile_seconds


def _numbers(metrics: dict[str, Any], steps: int) -> dict[str, float]:
    """Pick what shows that the run learned."""
    numbers = {"steps": float(steps)}
    for name, key in (("final_return", "train/episode_return"), ("evaluated", "eval/mean_returns")):
        if key in metrics:
            numbers[name] = float(np.nanmean(np.asarray(metrics[key])[..., -1]))
    return numbers


if __name__ == "__main__":
    serve(prepare)
