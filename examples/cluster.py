"""A pendulum of torch, trained by rsl_rl's PPO: in this process, in several, or on a Ray cluster.

python examples/cluster.py                                    # one process
python examples/cluster.py --workers 2                        # two worker processes
python examples/cluster.py --workers 8 --cluster 10.0.0.1:6379
"""

# Brief on purpose: what each part is stands on the page that shows it.
# ruff: noqa: D103, E402

# --8<-- [start:parts]
from dressage.policy import PolicyConfig
from dressage.policy.rsl_rl_policy.rsl_rl_policy import RSLRLPolicy
from dressage.policy.rsl_rl_policy.vec_env import VecEnvRollouts
from dressage.policy.torch_envs.pendulum import Pendulum
from dressage.runtime import Engine, RunSpec, RuntimeConfig

MODEL = {"class_name": "MLPModel", "hidden_dims": [64, 64], "activation": "elu", "obs_normalization": True}
RSL_RL = {  # as rsl_rl's own runner takes it
    "num_steps_per_env": 24,
    "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
    "actor": MODEL | {"distribution_cfg": {"class_name": "GaussianDistribution", "init_std": 1.0}},
    "critic": MODEL,
    "algorithm": {"class_name": "PPO", "num_learning_epochs": 5, "num_mini_batches": 4},
}


def make_env(seed: int) -> VecEnvRollouts:  # one worker's copies
    return VecEnvRollouts(Pendulum(num_envs=64, seed=seed), "pendulum")


SPEC = RunSpec(RSLRLPolicy, PolicyConfig(policy_kwargs=RSL_RL), make_env)
# --8<-- [end:parts]

# --8<-- [start:run]
import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Printer:
    """Prints rows of metrics; the sinks of dressage.reporting take the same rows."""

    def write(self, row: Mapping[str, Any]) -> None:
        """Print one row."""
        if row["kind"] == "event":
            print(row["event"])
        elif row["rollout/episodes"]:  # those of a pendulum end together, every 200 steps
            print(f"{row['updates']:5} updates, return {row['rollout/episode_return']:8.1f}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--cluster", help="'local' or a Ray head's address")
    parser.add_argument("--folder", type=Path, default=Path("runs/cluster"))
    parser.add_argument("--resume", action="store_true")
    given = parser.parse_args(arguments)
    config = RuntimeConfig(workers=given.workers, address=given.cluster, checkpoint_every=50)
    with Engine(SPEC, config, sinks=[Printer()], folder=given.folder) as engine:
        if given.resume:
            print(f"going on from update {engine.resume()}")
        report = engine.run(given.updates)
    print(f"{report.updates} updates, {report.steps:,} steps, exact resume: {report.exact_resume}")


if __name__ == "__main__":  # worker processes import this file too
    main()
# --8<-- [end:run]
