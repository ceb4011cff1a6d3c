"""Measure how long `ppo.train` with the default configuration takes to trace and compile.

Cold: a new process with an empty persistent cache. Warm: another new process with the cache that the first
    one left.
Each repeat begins with an empty cache. Imports are told apart.

    python benchmarks/compile_time.py --repeats 3
"""

import argparse
import tempfile
import time
from statistics import median
from typing import Any

from machine import conditions, save
from workers import Worker

TITLE = (
    "trace and compile of `train`, default Config; cold, and in a second process from the persistent cache"
)
LIMITS = {"cold": 5.0, "warm": 2.0}
Record = dict[str, Any]


def measure(repeats: int, task: str = "pendulum") -> Record:
    """Start two processes a repeat, with an empty cache and with the cache that the first one filled."""
    runs: dict[str, list[Record]] = {"cold": [], "warm": []}
    before = conditions()
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as cache:
            runs["cold"].append(_prepare(task, cache))
            runs["warm"].append(_prepare(task, cache))
    return {"title": TITLE, "task": task, "before": before, "after": conditions(), "runs": runs}


def _prepare(task: str, cache: str) -> Record:
    start = time.perf_counter()
    with Worker("dressage_worker.py", "dressage", {"task": task, "config": {}, "cache": cache}) as worker:
        ready_seconds = time.perf_counter() - start
        memory = worker.stop()
    return worker.prepared | memory | {"ready_seconds": ready_seconds}


def show(record: Record) -> None:
    """Print medians and what they must stay under."""
    print(f"\ncompile: {record['title']}")
    print(f"  {'':6} {'import s':>9} {'trace s':>8} {'compile s':>9} {'MiB':>6}   trace and compile together")
    for kind, runs in record["runs"].items():
        imports, trace, compilation, memory = (
            median(run[name] for run in runs)
            for name in ("import_seconds", "trace_seconds", "compile_seconds", "peak_memory_mib")
        )
        together = [run["trace_seconds"] + run["compile_seconds"] for run in runs]
        spread = f"{median(together):.2f} s ({min(together):.2f} to {max(together):.2f})"
        print(
            f"  {kind:6} {imports:9.2f} {trace:8.2f} {compilation:9.2f} {memory:6.0f}   {spread},"
            f" must stay under {LIMITS[kind]:g} s"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--task", default="pendulum")
    arguments = parser.parse_args()
    record = measure(arguments.repeats, arguments.task)
    show(record)
    print(f"  written to {save('compile_time', record)}")


if __name__ == "__main__":
    main()
