"""IPPO's speed: on the host against the environments alone, compiled against the common IPPO in JAX.

All ways of a table take turns in one run; medians count. The host's learner trains
`pettingzoo:mpe2.simple_spread_v3` with 8 copies x 128 steps, 4 epochs x 4 minibatches; the compiled one
`safe_spread`, which is the same task, with one network for its three agents, against JaxMARL's
`MPE_simple_spread_v3` under a program of the usual kind (`peers/common_jax_ippo.py`). The floor is what the
machine would reach if it did the networks' arithmetic alone, at the rate that `floor.py` measures.

    python benchmarks/many_agents.py [--rows host compiled agents] [--turns 5] [--save] [--plot]
"""

import argparse
import json
import sys
import time
from statistics import median
from typing import Any

from figures import IMAGES, axes, save_figure
from floor import ppo_flops
from host_workers import Alone
from machine import RESULTS, conditions, save
from workers import Worker

from dressage import envs
from dressage.rl.ippo import IPPO
from dressage.workers.making import env_maker

HOST_TASK = "pettingzoo:mpe2.simple_spread_v3"
HOST = {"num_envs": 8, "rollout_length": 128}
COMPILED: dict[str, Any] = {
    "task": "safe_spread",
    "peer_task": "MPE_simple_spread_v3",
    "minibatches": 4,
    "epochs": 4,
}
SIZES = {"16 x 128": (16, 200_000), "512 x 128": (512, 524_288)}
AGENTS = (2, 4, 8, 16, 32, 64)
COPIES = (4, 16, 64, 256, 1024)

PEER, FLOOR = "common JAX IPPO", "floor"
SPREAD_FLOPS = 3 * ppo_flops(obs_dim=18, actions=5, hidden=(64, 64), epochs=COMPILED["epochs"])

Rates = dict[str, list[float]]


class HostTraining:
    """IPPO over copies of a host environment."""

    def __init__(self, workers: int) -> None:
        self._env = envs.make(HOST_TASK)
        self._learner = IPPO({**HOST, "num_workers": workers})
        self._learner.train(self._env, self.steps)

    @property
    def steps(self) -> int:
        """Environment steps of one update."""
        return HOST["num_envs"] * HOST["rollout_length"]

    def block(self) -> float:
        """Return environment steps per second over two updates."""
        start = time.perf_counter()
        self._learner.train(self._env, 2 * self.steps)
        return 2 * self.steps / (time.perf_counter() - start)

    def close(self) -> None:
        """End the environments and their processes."""
        self._learner.close()


def host_rows(turns: int) -> dict[str, Any]:
    """Train on the host in this process and with two workers, beside the environments alone."""
    alone = Alone(env_maker(HOST_TASK), HOST["num_envs"])
    trainings = {"inline": HostTraining(0), "2 workers": HostTraining(2)}
    rates: Rates = {"alone": [], **{name: [] for name in trainings}}
    for _ in range(turns):
        rates["alone"].append(alone.block())
        for name, training in trainings.items():
            rates[name].append(training.block())
    for training in trainings.values():
        training.close()
    return _summary(rates, "alone")


def compiled_rows(turns: int) -> dict[str, Any]:
    """Train compiled, beside the common IPPO in JAX."""
    return {size: _beside_peer(copies, total, turns) for size, (copies, total) in SIZES.items()}


def _beside_peer(copies: int, total: int, turns: int) -> dict[str, Any]:
    given = {**COMPILED, "envs": copies, "steps": 128, "total_steps": total}
    peer = Worker("common_jax_ippo_worker.py", "dressage", given)
    ours = Worker("dressage_ippo_worker.py", "dressage", given)
    floor = Worker("floor_worker.py", "dressage", {"flops_per_step": SPREAD_FLOPS})
    rates: Rates = {PEER: [], "dressage": [], FLOOR: []}
    with peer, ours, floor:
        for turn in range(turns):
            rates[PEER].append(_rate(peer, turn))
            rates["dressage"].append(_rate(ours, turn))
            rates[FLOOR].append(floor.run(turn)["steps_per_second"])
        for worker in (peer, ours, floor):
            worker.stop()
    return _summary(rates, PEER)


def scaling_rows(turns: int) -> dict[str, Any]:
    """Measure how cost grows with agents (at 16 copies) and with copies (of three agents)."""
    found: dict[str, Any] = {"agents": {}, "copies": {}}
    for count in AGENTS:
        found["agents"][count] = _compiled_rate(16, turns, {"num_agents": count})
    for copies in COPIES:
        found["copies"][copies] = _compiled_rate(copies, turns, {})
    return found


def draw(scaling: dict[str, Any]) -> None:
    """Plot what an agent's step costs by the number of agents, and the rate by the number of copies."""
    counts = [int(count) for count in scaling["agents"]]
    costs = [1e6 / (rate * count) for count, rate in zip(counts, scaling["agents"].values(), strict=True)]
    pictures = {
        "agents": (counts, costs, "agents, each with 16 copies", "microseconds an agent's step"),
        "copies": (
            [int(count) for count in scaling["copies"]],
            list(scaling["copies"].values()),
            "copies of three agents",
            "environment steps a second",
        ),
    }
    for name, (sizes, values, across, up) in pictures.items():
        figure, panel = axes(across, up)
        panel.plot(sizes, values, marker="o")
        panel.set_xscale("log", base=2)
        panel.set_xticks(sizes, [f"{size:,}" for size in sizes])
        panel.set_ylim(bottom=0)
        print(f"drawn to {save_figure(figure, IMAGES / f'bench_many_{name}.png')}")


def _compiled_rate(copies: int, turns: int, task_options: dict[str, Any]) -> float:
    given = {
        **COMPILED,
        "envs": copies,
        "steps": 128,
        "total_steps": 8 * copies * 128,
        "task_options": task_options,
    }
    with Worker("dressage_ippo_worker.py", "dressage", given) as worker:
        rates = [_rate(worker, turn) for turn in range(turns)]
        worker.stop()
    return median(rates)


def _rate(worker: Worker, turn: int) -> float:
    numbers = worker.run(turn)
    return float(numbers["steps"] / numbers["seconds"])


def _summary(rates: Rates, base: str) -> dict[str, Any]:
    medians = {name: median(found) for name, found in rates.items()}
    return {
        name: {
            "median": medians[name],
            "least": min(found),
            "most": max(found),
            "ratio": medians[name] / medians[base],
        }
        for name, found in rates.items()
    }


def _show(title: str, table: dict[str, Any]) -> None:
    print(title)
    for name, row in table.items():
        print(f"  {name:16} {row['median']:10,.0f} steps/s  {row['ratio']:5.2f}")
    sys.stdout.flush()


def main() -> None:
    """Print the tables and keep the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", nargs="*", default=["host", "compiled"], help="host, compiled, agents")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS / 'many_agents.json'}")
    parser.add_argument("--plot", action="store_true", help="only draw the saved costs again")
    given = parser.parse_args()
    if given.plot:
        draw(json.loads((RESULTS / "many_agents.json").read_text())["scaling"])
        return
    results: dict[str, Any] = {"conditions": conditions()}
    if "host" in given.rows:
        results["host"] = host_rows(given.turns)
        _show("host, mpe2 simple_spread, 8 x 128", results["host"])
    if "compiled" in given.rows:
        results["compiled"] = compiled_rows(given.turns)
        for size, table in results["compiled"].items():
            _show(f"compiled, simple_spread, {size}", table)
    if "agents" in given.rows:
        results["scaling"] = scaling_rows(given.turns)
        print(results["scaling"])
    if given.save:
        save("many_agents", results)


if __name__ == "__main__":
    main()
