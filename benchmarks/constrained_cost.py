"""What a limit costs: one update of each learner under a limit against one of IPPO, on the same rollouts.

Three agents with equal spaces (a group, so one compiled update), 4,096 samples each, networks of two layers
of 64 units; IPPO makes 4 epochs of 4 minibatches. The learners take turns, so that a busy machine slows all
of them alike; what is compared are medians.

    python benchmarks/constrained_cost.py
    python benchmarks/constrained_cost.py --turns 40
"""

import argparse
import time
from typing import Any

import jax
import numpy as np
from machine import conditions, save

from dressage import envs
from dressage.learning import scan_driver
from dressage.learning.compilation import compiler_options
from dressage.learning.grouped_env import ManyAgentsEnv
from dressage.rl.algorithm import Algorithm
from dressage.rl.icpo import CPO, ICPO
from dressage.rl.ippo import IPPO
from dressage.rl.ippo_lag import IPPO_Lagrangian

SIZES = {"num_envs": 32, "rollout_length": 128}
HELD = SIZES | {"cost_limit": 1.0}
LEARNERS: dict[str, Algorithm] = {
    "IPPO": IPPO(SIZES),
    "IPPO_Lagrangian": IPPO_Lagrangian(HELD),
    "CPO": CPO(HELD),
    "ICPO": ICPO(HELD),
    "CPO, Hessian of all samples": CPO(HELD | {"fisher_samples": None}),
}
ALLOWED = {"CPO": 2.0, "ICPO": 3.0}


class Update:
    """One compiled update of a learner, ready to be repeated."""

    def __init__(self, learner: Algorithm, env: Any, rollouts: Any) -> None:  # noqa: ANN401
        prepared = learner.prepare(env)
        self._groups = learner.make_groups(prepared, SIZES["num_envs"] * SIZES["rollout_length"])
        self._rollouts = rollouts
        self._state = prepared.make_run(self._groups, (0,)).init()
        self._learn = jax.jit(scan_driver.learn, compiler_options=compiler_options())

    def run(self) -> float:
        """Make it; returns seconds."""
        keys = jax.random.split(jax.random.key(1), len(self._groups))
        start = time.perf_counter()
        state = self._state
        jax.block_until_ready(self._learn(self._groups, state.agents, self._rollouts, keys, state.fault))
        return time.perf_counter() - start


def collect() -> tuple[Any, Any]:
    """Return the environment, and one rollout of a policy that nothing has trained yet."""
    env = envs.make("crossing", num_agents=3, continuous=False)
    learner = LEARNERS["IPPO"]
    prepared = learner.prepare(env)
    groups = learner.make_groups(prepared, 0)
    vector = ManyAgentsEnv(env, SIZES["num_envs"])
    state = jax.block_until_ready(prepared.make_run(groups, (0,)).init())
    update = jax.jit(lambda state: scan_driver.update(vector, groups, SIZES["rollout_length"], state)[2])
    return env, jax.block_until_ready(update(state))


def main() -> None:
    """Measure, print the table as Markdown, and save it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=20)
    given = parser.parse_args()
    env, rollouts = collect()
    updates = {name: Update(learner, env, rollouts) for name, learner in LEARNERS.items()}
    for update in updates.values():
        update.run()
    times = {name: [] for name in updates}
    for _ in range(given.turns):
        for name, update in updates.items():
            times[name].append(update.run())
    medians = {name: float(np.median(seconds)) for name, seconds in times.items()}
    print("| learner | ms an update | of an IPPO update | at most |", "| --- | --- | --- | --- |", sep="\n")
    for name, seconds in medians.items():
        allowed = f"{ALLOWED[name]:g}" if name in ALLOWED else ""
        print(f"| {name} | {1e3 * seconds:.1f} | {seconds / medians['IPPO']:.2f} | {allowed} |")
    save("constrained_cost", {"conditions": conditions(), "seconds": times})


if __name__ == "__main__":
    main()
