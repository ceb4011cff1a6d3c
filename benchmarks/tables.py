"""Write the results into the pages of docs: each table stands between two comments that name it.

    python benchmarks/tables.py

What has no result yet keeps the text that stands there.
"""

import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import learned_gains
import limits
from compile_time import LIMITS
from machine import RESULTS
from ppo_throughput import COMPILE
from rows import ROWS

DOCS = Path(__file__).resolve().parents[1] / "docs"
Record = dict[str, Any]


def throughput(record: Record) -> str:
    """Tell every row's rates, and dressage's ratios against what was asked for."""
    lines = [
        "| what | who | env steps/s, median (range) | dressage / it, median (range) | must reach (aim) |",
        "|---|---|---:|---:|---:|",
    ]
    for row in record["rows"]:
        ratios = {ratio["to"]: ratio for ratio in row["ratios"] if ratio["of"] == "dressage"}
        for index, (name, result) in enumerate(row["competitors"].items()):
            title = row["title"] if index == 0 else ""
            lines.append(
                f"| {title} | {name} | {_rate(result['steps_per_second'])} | {_ratio(ratios.get(name))} |"
            )
    return "\n".join([*lines, "", _conditions(record)])


def times(record: Record) -> str:
    """Tell what is kept apart from the steps a second: imports, trace, compilation and memory."""
    lines = [
        "| what | who | import s | trace s | compile s | peak memory, MiB |",
        "|---|---|---:|---:|---:|---:|",
    ]
    named = [
        (row["name"], name, result) for row in record["rows"] for name, result in row["competitors"].items()
    ]
    for row_name, name, result in named:
        if name == "floor":
            continue
        columns = [f"{result[key]:.1f}" for key in ("import_seconds", "trace_seconds", "compile_seconds")]
        lines.append(f"| {row_name} | {name} | {' | '.join(columns)} | {result['peak_memory_mib']:,.0f} |")
    return "\n".join(lines)


def notes(record: Record) -> str:
    """Tell what differs between the sides of a row."""
    told = {row.name: row.note for row in ROWS if row.note}
    return "\n".join(
        f"- **{row['name']}**: {told[row['name']]}" for row in record["rows"] if row["name"] in told
    )


def compilation(record: Record) -> str:
    """Tell how long the first and the second process take before they train."""
    lines = [
        "| process | import s | trace s | compile s | trace and compile, s (range) | limit, s |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    names = {"cold": "first, empty cache", "warm": "second, from the persistent cache"}
    for kind, runs in record[COMPILE]["runs"].items():
        columns = [
            median(run[key] for run in runs) for key in ("import_seconds", "trace_seconds", "compile_seconds")
        ]
        together = [run["trace_seconds"] + run["compile_seconds"] for run in runs]
        spread = f"{median(together):.2f} ({min(together):.2f} to {max(together):.2f})"
        parts = " | ".join(f"{column:.2f}" for column in columns)
        lines.append(f"| {names[kind]} | {parts} | {spread} | {LIMITS[kind]:g} |")
    return "\n".join(lines)


def stages(record: Record) -> str:
    """Tell where the time of an update goes in the two CartPole rows."""
    told = [(name, part) for name, part in record.items() if isinstance(part, dict) and "stages" in part]
    blocks = []
    for name, part in told:
        whole = part["stages"][-1]["milliseconds"]
        lines = [
            f"{name}, {part['samples']:,} samples an update; the chain reaches {part['gflops']:.0f} GFLOP/s:",
            "",
            "| stage | ms | share of the whole | at the floor, ms | of the floor |",
            "|---|---:|---:|---:|---:|",
        ]
        for row in part["stages"]:
            bound = row["flops"] / part["gflops"] / 1e6
            floor = f"{bound:.3f} | {bound / row['milliseconds']:.0%}" if bound else " | "
            share = f"{row['milliseconds'] / whole:.1%}"
            lines.append(f"| {row['stage']} | {row['milliseconds']:.3f} | {share} | {floor} |")
        blocks.append("\n".join(lines))
    return "\n\n".join([*blocks, _conditions(record)])


def learning(record: Record) -> str:
    """Tell what every seed reached."""
    lines = [
        "| task | steps | goal | mean return at the end | every seed | time for all seeds, s |",
        "|---|---:|---:|---:|---|---:|",
    ]
    for task, part in record.items():
        if task == "conditions":
            continue
        seeds = ", ".join(f"{value:.1f}" for value in part["final"]["seeds"])
        steps, mean = f"{part['steps'][-1]:,}", f"{part['final']['mean']:.1f}"
        lines.append(f"| {task} | {steps} | {part['wanted']:g} | {mean} | {seeds} | {part['seconds']:.1f} |")
    return "\n".join(lines)


def optima(record: Record) -> str:
    """Tell what the learners under a limit reached of the optimum."""
    return _with_moment(record, limits.limits_table(record["rows"]))


def recovery(record: Record) -> str:
    """Tell how far learners come back from far outside a limit."""
    return _with_moment(record, limits.recovery_table(record["rows"]))


def shaping(record: Record) -> str:
    """Tell what training on `crossing` violated."""
    return _with_moment(record, limits.shaping_table(record["rows"]))


def gains(record: Record) -> str:
    """Tell what learned gains of a barrier shield are worth beside fixed ones."""
    return _with_moment(record, learned_gains.table(record["rows"]))


def _with_moment(record: Record, table: str) -> str:
    """Add the conditions of rows that were measured one by one."""
    loads = [row["load_average"][0] for row in record["rows"]]
    days = sorted({row["time"][:10] for row in record["rows"]})
    now = record["conditions"]
    versions = ", ".join(f"{name} {version}" for name, version in now["versions"].items())
    load = f"load average {min(loads):g} to {max(loads):g} after each row"
    parts = (" and ".join(days), now["processor"], f"{now['cores']} cores", load)
    return f"{table}\n\n*{', '.join(parts)}; Python {now['python']}, {versions}.*"


def _rate(rate: Record) -> str:
    return f"{rate['median']:,.0f} ({rate['smallest']:,.0f} to {rate['largest']:,.0f})"


def _ratio(ratio: Record | None) -> str:
    if ratio is None:
        return "|"
    told = f"{ratio['median']:.2f} ({ratio['smallest']:.2f} to {ratio['largest']:.2f})"
    return f"{told} | {ratio['minimum']:g} ({ratio['aim']:g})" if "minimum" in ratio else f"{told} |"


def _conditions(record: Record) -> str:
    now = record["conditions"]
    versions = ", ".join(f"{name} {version}" for name, version in now["versions"].items())
    load = now["load_average"][0]
    parts = (
        now["time"][:10],
        now["processor"],
        f"{now['cores']} cores",
        f"load average {load:g} at the start",
    )
    return f"*{', '.join(parts)}; Python {now['python']}, {versions}.*"


# Page and name of the table on it, the file that it comes from, and who writes it.
TABLES: tuple[tuple[str, str, str, Callable[[Record], str]], ...] = (
    ("benchmarks.md", "throughput", "ppo_throughput", throughput),
    ("benchmarks.md", "times", "ppo_throughput", times),
    ("benchmarks.md", "notes", "ppo_throughput", notes),
    ("benchmarks.md", "compilation", "ppo_throughput", compilation),
    ("benchmarks.md", "stages", "breakdown", stages),
    ("benchmarks.md", "learning", "learning", learning),
    ("limits.md", "optima", "limits_optima", optima),
    ("limits.md", "recovery", "limits_recovery", recovery),
    ("limits.md", "shaping", "limits_shaping", shaping),
    ("shields.md", "learned gains", "learned_gains", gains),
)


def fill(page: str, name: str, table: str) -> str:
    """Return the page with a table put between the two comments that name it.

    Raises:
        ValueError: If the page has no such comments.
    """
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, found, rest = page.partition(start)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"The page has no place for the table '{name}': expected {start} and {end}.")
    return f"{before}{start}\n\n{table}\n\n{end}{after}"


def main() -> None:
    """Fill every table that has a result."""
    for page, name, file, write in TABLES:
        path = RESULTS / f"{file}.json"
        record = json.loads(path.read_text()) if path.exists() else {}
        if not record or (name == "compilation" and COMPILE not in record):
            print(f"{name}: no result in {path}")
            continue
        place = DOCS / page
        place.write_text(fill(place.read_text(), name, write(record)))
        print(f"{name}: filled")


if __name__ == "__main__":
    main()
