"""What the runtime costs: rsl_rl's own runner against the engine in one process, in several, and on Ray.

Everyone trains the same PPO on the same torch pendulum: 24 steps, 5 epochs of 4 minibatches, one thread for
each process. With two workers the same number of environments is dealt out to both, so that an update learns
from as many steps everywhere. The asynchronous one learns, by V-trace, while its worker collects. All take
turns within one run; medians count. The engine's own stopwatch tells where its time goes: collecting (the
slowest worker), transfer (what the learner waited beyond that), learning, publishing.

    python benchmarks/rsl_runtime.py [--envs 64 1024] [--turns 7] [--updates 10] [--save]
"""

import argparse
import contextlib
import copy
import functools
import io
import time
from collections.abc import Mapping
from importlib import metadata
from importlib.util import find_spec
from statistics import median
from typing import Any, Protocol

import torch
from machine import conditions, save
from rsl_rl.runners import OnPolicyRunner

from dressage.policy import PolicyConfig
from dressage.policy.rsl_rl_policy.rsl_rl_policy import RSLRLPolicy
from dressage.policy.rsl_rl_policy.vec_env import VecEnvRollouts
from dressage.policy.torch_envs.pendulum import Pendulum
from dressage.runtime import Engine, RunSpec, RuntimeConfig

STEPS = 24
STAGES = ("collect", "transfer", "learn", "publish")
WAYS: dict[str, dict[str, Any]] = {
    "inline": {"workers": 1, "transport": "inline"},
    "processes, 1 worker": {"workers": 1, "transport": "processes"},
    "processes, 2 workers": {"workers": 2, "transport": "processes"},
    "processes, 1, async": {"workers": 1, "transport": "processes"},
    "ray, 1 worker": {"workers": 1, "address": "local"},
    "ray, 2 workers": {"workers": 2, "address": "local"},
}


def training_config() -> dict[str, Any]:
    """Return rsl_rl's configuration of everyone."""
    model = {
        "class_name": "MLPModel",
        "hidden_dims": [64, 64],
        "activation": "elu",
        "obs_normalization": True,
    }
    gaussian = {"class_name": "GaussianDistribution", "init_std": 1.0, "std_type": "scalar"}
    return {
        "num_steps_per_env": STEPS,
        "save_interval": 10**9,
        "obs_groups": {"actor": ["policy"], "critic": ["policy"]},
        "actor": {**model, "distribution_cfg": gaussian},
        "critic": model,
        "algorithm": {
            "class_name": "PPO",
            "num_learning_epochs": 5,
            "num_mini_batches": 4,
            "learning_rate": 1e-3,
            "schedule": "adaptive",
            "desired_kl": 0.01,
        },
    }


def make_pendulum(seed: int, num_envs: int) -> VecEnvRollouts:
    """Make one worker's environments."""
    return VecEnvRollouts(Pendulum(num_envs=num_envs, seed=seed), "pendulum")


class Way(Protocol):
    """One of those that take turns."""

    def train(self, updates: int) -> dict[str, float]:
        """Make so many updates; returns seconds an update in all and by stage."""

    def close(self) -> None:
        """End it."""


class Runner:
    """rsl_rl's own runner."""

    def __init__(self, envs: int) -> None:
        torch.manual_seed(0)
        with contextlib.redirect_stdout(io.StringIO()):
            self._runner = OnPolicyRunner(
                Pendulum(num_envs=envs), copy.deepcopy(training_config()), log_dir=None
            )

    def train(self, updates: int) -> dict[str, float]:
        """Train on."""
        start = time.perf_counter()
        with contextlib.redirect_stdout(io.StringIO()):
            self._runner.learn(updates)
        return {"update": (time.perf_counter() - start) / updates}

    def close(self) -> None:
        """Nothing to end."""


class Ours:
    """The engine, laid out in one way."""

    def __init__(self, envs: int, name: str) -> None:
        layout = WAYS[name]
        make = functools.partial(make_pendulum, num_envs=envs // layout["workers"])
        mode: Any = "async" if name.endswith("async") else "sync"
        policy = PolicyConfig(policy_kwargs=training_config(), rollout_mode=mode, time_out_bootstrap="rsl_rl")
        self._rows: list[Mapping[str, Any]] = []
        self._engine = Engine(RunSpec(RSLRLPolicy, policy, make), RuntimeConfig(**layout), sinks=[self])

    def write(self, row: Mapping[str, Any]) -> None:
        """Take a row of metrics."""
        self._rows.append(row)

    def train(self, updates: int) -> dict[str, float]:
        """Train on."""
        self._rows.clear()
        start = time.perf_counter()
        self._engine.run(self._engine.learner.version + updates)
        seconds = {"update": (time.perf_counter() - start) / updates}
        rows = [row for row in self._rows if row["kind"] == "train"]
        return seconds | {stage: median(row[f"time/{stage}_s"] for row in rows) for stage in STAGES}

    def close(self) -> None:
        """End its workers."""
        self._engine.close()


def measure(envs: int, turns: int, updates: int, names: list[str]) -> dict[str, dict[str, float]]:
    """Let all take turns; returns the median seconds an update, in all and by stage."""
    ways: dict[str, Way] = {"rsl_rl's runner": Runner(envs)}
    ways |= {name: Ours(envs, name) for name in names}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for turn in range(turns + 1):
        for name, way in ways.items():
            seconds = way.train(updates)
            found[name] += [seconds] if turn else []  # the first turn warms up
    for way in ways.values():
        way.close()
    return {
        name: {stage: median(one[stage] for one in many) for stage in many[0]} for name, many in found.items()
    }


def show(envs: int, table: Mapping[str, Mapping[str, float]]) -> None:
    """Print one table."""
    runner, inline = table["rsl_rl's runner"]["update"], table["inline"]["update"]
    print(f"\n{envs} environments x {STEPS} steps: milliseconds an update, medians")
    print(
        f"{'':22}{'steps/s':>10}{'update':>9}"
        + "".join(f"{stage:>10}" for stage in STAGES)
        + "  to runner  to inline"
    )
    for name, seconds in table.items():
        update = seconds["update"]
        stages = "".join(
            f"{seconds[stage] * 1000:10.2f}" if stage in seconds else f"{'':10}" for stage in STAGES
        )
        ratios = f"{runner / update:11.2f}{inline / update:11.2f}"
        print(f"{name:22}{envs * STEPS / update:10,.0f}{update * 1000:9.1f}{stages}{ratios}")
    shares = {name: one["publish"] / one["update"] for name, one in table.items() if "publish" in one}
    print(
        "publication of weights, share of an update: " + ", ".join(f"{k} {v:.1%}" for k, v in shares.items())
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--envs", type=int, nargs="+", default=[64, 1024])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--updates", type=int, default=10, help="updates a turn")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/rsl_runtime.json")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if find_spec("ray") and any(name.startswith("ray") for name in given.ways):
        import ray

        # One cluster for all that take turns.
        ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False)
    names = [name for name in given.ways if find_spec("ray") or not name.startswith("ray")]
    tables = {envs: measure(envs, given.turns, given.updates, names) for envs in given.envs}
    for envs, table in tables.items():
        show(envs, table)
    if given.save:
        packages = ("torch", "rsl-rl-lib", "tensordict", "ray")
        versions = {name: metadata.version(name) for name in packages}
        save("rsl_runtime", {"conditions": conditions(), "torch_side": versions, "tables": tables})


if __name__ == "__main__":
    main()
