"""Measure PPO's environment steps a second against peers and against the machine's floor.

Each peer runs in its own virtual environment (made on first use), as a process that compiles first and then
waits. The competitors of a row take turns, so that a noisy moment meets all of them, and every one trains
with the same task, budget and sizes. Times to import, to trace and to compile, and peak memory, are told
apart from the steps a second. Ratios are medians of the ratios within a turn; the spread beside them is the
smallest and the largest.

    python benchmarks/ppo_throughput.py --list
    python benchmarks/ppo_throughput.py --rows cartpole-4 --repeats 3 --quick     # about a minute
    python benchmarks/ppo_throughput.py                                           # everything; about 15
    minutes

The result is written to benchmarks/results as JSON, with versions, processor and load.
"""

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median
from typing import Any

import compile_time
from machine import conditions, save
from rows import ROWS, Row
from workers import Worker

COMPILE = "compile"
Record = dict[str, Any]


def measure_row(row: Row, repeats: int) -> Record:
    """Let the competitors of a row take turns.

    Args:
        row: What is measured.
        repeats: Turns that count; one more before them warms everything up.

    Returns:
        The row's result: per competitor all rates, times and memory, and the ratios to dressage.
    """
    before = conditions()
    with ExitStack() as stack:
        workers = {
            competitor.name: stack.enter_context(
                Worker(competitor.script, competitor.environment, competitor.settings)
            )
            for competitor in row.competitors
        }
        turns = [_turn(workers, seed) for seed in range(repeats + 1)][1:]
        memory = {name: worker.stop()["peak_memory_mib"] for name, worker in workers.items()}
    results = {
        name: worker.prepared | {"peak_memory_mib": memory[name], "runs": [turn[name] for turn in turns]}
        for name, worker in workers.items()
    }
    return {
        "name": row.name,
        "title": row.title,
        "note": row.note,
        "settings": {competitor.name: competitor.settings for competitor in row.competitors},
        "before": before,
        "after": conditions(),
        "competitors": {
            name: result | {"steps_per_second": _rate(result["runs"])} for name, result in results.items()
        },
        "ratios": _ratios(row, turns),
    }


def _turn(workers: dict[str, Worker], seed: int) -> dict[str, Record]:
    """Let everyone run once, in an order that changes from turn to turn."""
    names = list(workers)
    shift = seed % len(names)
    return {name: _with_rate(workers[name].run(seed)) for name in names[shift:] + names[:shift]}


def _with_rate(run: Record) -> Record:
    """Add steps per second, unless the worker told them itself as the floor does."""
    return run if "steps_per_second" in run else run | {"steps_per_second": run["steps"] / run["seconds"]}


def _rate(runs: Sequence[Record]) -> dict[str, float]:
    rates = [run["steps_per_second"] for run in runs]
    return {"median": median(rates), "smallest": min(rates), "largest": max(rates)}


def _ratios(row: Row, turns: Sequence[dict[str, Record]]) -> list[Record]:
    """Compare dressage, both ways where there are two, with everyone else."""
    ours = [name for name in turns[0] if name.startswith("dressage")]
    targets = {target.competitor: target for target in row.targets}
    records = []
    for name in ours:
        for other in [other for other in turns[0] if other not in ours]:
            ratios = [turn[name]["steps_per_second"] / turn[other]["steps_per_second"] for turn in turns]
            target = targets.get(other)
            record = {
                "of": name,
                "to": other,
                "median": median(ratios),
                "smallest": min(ratios),
                "largest": max(ratios),
            }
            records.append(record | ({"minimum": target.minimum, "aim": target.aim} if target else {}))
    return records


def show_row(record: Record) -> None:
    """Print a row's result as a table."""
    print(f"\n{record['name']}: {record['title']}")
    times = f"{'import s':>9} {'trace s':>8} {'compile s':>9} {'MiB':>6}"
    print(f"  {'':20} {'steps/s':>11} {'from':>11} {'to':>11} {times}")
    for name, result in record["competitors"].items():
        rate = result["steps_per_second"]
        times = (
            f"{result['import_seconds']:9.1f} {result['trace_seconds']:8.1f} {result['compile_seconds']:9.1f}"
        )
        print(
            f"  {name:20} {rate['median']:11,.0f} {rate['smallest']:11,.0f} {rate['largest']:11,.0f}"
            f" {times} {result['peak_memory_mib']:6.0f}"
        )
    for ratio in record["ratios"]:
        wanted = f", must reach {ratio['minimum']:g}, aim {ratio['aim']:g}" if "minimum" in ratio else ""
        spread = f"{ratio['smallest']:.2f} to {ratio['largest']:.2f}"
        print(f"  {ratio['of']} / {ratio['to']}: {ratio['median']:.2f} ({spread}){wanted}")
    before, after = record["before"]["load_average"][0], record["after"]["load_average"][0]
    print(f"  load average before and after: {before:.1f}, {after:.1f}", flush=True)


def main() -> None:
    """Measure the rows that the command line names."""
    arguments = _arguments()
    if arguments.list:
        for row in ROWS:
            print(f"{row.name:16} {row.title}")
        print(f"{COMPILE:16} {compile_time.TITLE}")
        return
    content: Record = {
        "conditions": conditions(),
        "repeats": arguments.repeats,
        "quick": arguments.quick,
        "rows": [],
    }
    for row in (row for row in ROWS if row.name in arguments.rows):
        record = measure_row(row.quick() if arguments.quick else row, arguments.repeats)
        show_row(record)
        content["rows"].append(record)
        print(f"  written to {save(arguments.output, content)}")
    if COMPILE in arguments.rows:
        content[COMPILE] = compile_time.measure(arguments.repeats)
        compile_time.show(content[COMPILE])
        print(f"  written to {save(arguments.output, content)}")


def _arguments() -> argparse.Namespace:
    names = [*(row.name for row in ROWS), COMPILE]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rows", nargs="+", choices=names, default=names, metavar="ROW", help="which rows; all by default"
    )
    parser.add_argument("--repeats", type=int, default=5, help="turns that count (default 5)")
    parser.add_argument("--quick", action="store_true", help="a quarter of the steps")
    parser.add_argument("--output", default="ppo_throughput", help="name of the file in benchmarks/results")
    parser.add_argument("--list", action="store_true", help="only list the rows")
    return parser.parse_args()


if __name__ == "__main__":
    main()
