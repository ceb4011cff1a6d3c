"""Hold learned gains of a barrier shield against fixed ones, on `shielded_crossing`.

With a learned gain every action brings its own (`ParameterizedIPPO`), in units of the task's `gain_scale`, or
of another one that is given behind a slash; with a fixed one the same learner chooses accelerations alone
(`IPPO`). Five seeds at once, with the same options and steps, then 500 episodes of each with sampled actions.
Collisions are counted over all of training and evaluation; robots start apart.

    python benchmarks/learned_gains.py
    python benchmarks/learned_gains.py --gains learned/1 8
"""

import argparse
import time
from typing import Any

import numpy as np
from machine import save_rows

from dressage import envs
from dressage.rl.ippo import IPPO
from dressage.rl.parameterized_ippo import ParameterizedIPPO

Record = dict[str, Any]

EPISODES = 500
SETTINGS: Record = {"num_envs": 32, "rollout_length": 120, "learning_rate": 1e-3, "share_parameters": True}
LEARNED = "learned"


def measure(gain: str, steps: int, seeds: int) -> Record:
    """Train and evaluate with one gain, in 1/s, or with learned ones; numbers are by seed."""
    name, _, scale = gain.partition("/")
    fixed = None if name == LEARNED else float(name)
    env = envs.make("shielded_crossing", gain=fixed, **({"gain_scale": float(scale)} if scale else {}))
    learner = (ParameterizedIPPO if fixed is None else IPPO)(SETTINGS)
    start = time.perf_counter()
    results = learner.train_seeds(env, steps, list(range(seeds)))
    seconds = time.perf_counter() - start
    played = learner.evaluate(env, EPISODES)
    trained = sum(sum(episode["agent_costs"].values()) for one in results for episode in one.history)
    last = [[rows[-1]["shield_rate"] for rows in one.metrics.values()] for one in results]
    return {
        "gain": gain,
        "steps": steps,
        "seconds": seconds,
        "returns": np.mean([one["returns"] for one in played.values()], axis=(0, 2)).tolist(),
        "collisions": float(trained + sum(one["costs"].sum() for one in played.values())),
        "interventions": np.mean(last, axis=1).tolist(),
    }


def table(rows: list[Record]) -> str:
    """Write the rows as Markdown, each number with its standard deviation over the seeds."""
    lines = ["| Gain, 1/s | Return | Collisions | Steps with an intervention |", "|" + " --- |" * 4]
    for row in rows:
        returned = f"{np.mean(row['returns']):.2f} ± {np.std(row['returns'], ddof=1):.2f}"
        share = 100 * np.array(row["interventions"])
        intervened = f"{share.mean():.0f} ± {share.std(ddof=1):.0f} %"
        lines.append(f"| {row['gain']} | {returned} | {row['collisions']:.0f} | {intervened} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print the table as Markdown, and save the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gains", nargs="+", default=[LEARNED, f"{LEARNED}/1", "0.69", "6.9", "32"])
    parser.add_argument("--steps", type=int, default=153_600)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    rows = []
    for gain in given.gains:
        rows.append(measure(gain, given.steps, given.seeds))
        print(table(rows[-1:]).splitlines()[-1], flush=True)
        save_rows("learned_gains", rows[-1:], ("gain", "steps"))
    print(f"\n{table(rows)}\n")


if __name__ == "__main__":
    main()
