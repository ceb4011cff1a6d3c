"""Worker of stable-baselines3 and of sbx, its JAX twin: PPO on Gymnasium's CartPole with their defaults.

Setting `library` is "stable_baselines3" or "sbx"; both have the same interface. The network is built before
the time starts; sbx compiles during a first `learn`, which is reported as compilation.
"""

import time

from protocol import Prepared, serve, settings

GIVEN = settings()

import torch  # noqa: E402 (the processors are chosen before)
from stable_baselines3.common.env_util import make_vec_env  # noqa: E402

if GIVEN["library"] == "sbx":
    from sbx import PPO
else:
    from stable_baselines3 import PPO

VERSIONS = {
    "sbx": ("sbx-rl", "stable-baselines3", "jax", "gymnasium"),
    "stable_baselines3": ("stable-baselines3",),
}


def prepare() -> Prepared:
    """Let the library compile what it compiles."""
    torch.set_num_threads(GIVEN.get("cpus") or torch.get_num_threads())
    start = time.perf_counter()
    if GIVEN["library"] == "sbx":
        learn(0, GIVEN["envs"] * GIVEN["steps"])
    compile_seconds = time.perf_counter() - start

    def run(seed: int) -> dict[str, float]:
        model = learn(seed, GIVEN["total_steps"])
        return {"steps": float(model.num_timesteps)}

    return Prepared(run, 0.0, compile_seconds, (*VERSIONS[GIVEN["library"]], "torch"))


def learn(seed: int, total_steps: int) -> "PPO":
    """Train a fresh model."""
    env = make_vec_env(GIVEN["env"], n_envs=GIVEN["envs"], seed=seed)
    model = PPO("MlpPolicy", env, seed=seed, device="cpu", **GIVEN.get("config", {}))
    model.learn(total_timesteps=total_steps)
    return model


serve(prepare)
