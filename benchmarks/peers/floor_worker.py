"""Worker of the machine's floor: takes turns like a peer, so that a noisy moment meets it as well."""

import sys
from pathlib import Path

from protocol import Prepared, serve, settings

GIVEN = settings()
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from floor import FloorMeter  # noqa: E402 (it lies one folder up)


def prepare() -> Prepared:
    """Compile the chain."""
    meter = FloorMeter()

    def run(_: int) -> dict[str, float]:
        rate = meter.chain_rate(GIVEN.get("calls", 200))
        return {"gflops": rate / 1e9, "steps_per_second": rate / GIVEN["flops_per_step"]}

    return Prepared(run, packages=("jax", "jaxlib"))


serve(prepare)
