"""What a result must say of the machine and the moment it was measured on."""

import json
import os
import platform
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from dressage.processor import processor_facts

RESULTS = Path(__file__).resolve().parent / "results"
PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy")


def conditions() -> dict[str, Any]:
    """Return processor, cores, load, time and versions."""
    return {
        "time": time.strftime("%Y-%m-%d %H:%M:%S"),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in PACKAGES},
    }


def save(name: str, content: dict[str, Any], folder: Path = RESULTS) -> Path:
    """Write a result with its conditions as `folder/name.json` and return the path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(content, indent=2) + "\n")
    return path


def save_rows(name: str, rows: list[dict[str, Any]], same: tuple[str, ...], folder: Path = RESULTS) -> Path:
    """Put rows into a result, each with the moment and load it was measured at; other rows stay.

    Args:
        name: The result's name.
        rows: The rows.
        same: Fields by which a row takes the place of an earlier one.
        folder: Where results lie.
    """
    now, path = conditions(), folder / f"{name}.json"
    kept = json.loads(path.read_text())["rows"] if path.exists() else []
    for row in rows:
        stamped = {**row, "time": now["time"], "load_average": now["load_average"]}
        kept = [one for one in kept if any(one.get(key) != row.get(key) for key in same)] + [stamped]
    return save(name, {"conditions": now, "rows": kept}, folder)


def _processor() -> str:
    """Return the processor's name and what tells it from others of that name."""
    found = processor_facts()
    family, model = found.get("cpu family", "?"), found.get("model", "?")
    widest = next(
        (name for name in ("avx512f", "avx2", "avx") if name in found.get("flags", "").split()), "no AVX"
    )
    return f"{found.get('model name', platform.machine())} (family {family}, model {model}, {widest})"
