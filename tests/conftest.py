"""Settings that all tests share. They stand before anything that could import JAX or Matplotlib."""

import gc
import os
import sys
from pathlib import Path

from tests import shared_programs

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["MPLBACKEND"] = "Agg"
os.environ.update(shared_programs.variables())

import pytest
from hypothesis import settings

# Tracing makes many small objects and hardly any garbage; looking for it took a tenth of the time.
gc.set_threshold(50_000, 20, 20)

# Compiling makes first examples slow, so there is no deadline; the same examples each time keep a
# failure repeatable. To search further: pytest --hypothesis-profile=explore
settings.register_profile("repeatable", deadline=None, derandomize=True, database=None)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile("repeatable")


def pytest_collection_finish():
    gc.freeze()  # Nothing that was imported becomes garbage.


def pytest_unconfigure():
    shared_programs.remove()


LARGEST = 2 << 30
"""Bytes of memory beyond which a test process lets go of what JAX has compiled."""


@pytest.fixture(scope="module", autouse=True)
def bounded_memory():
    """Forget compiled programs between modules once they fill the memory; thousands of tests compile."""
    yield
    if "jax" in sys.modules and resident_bytes() > LARGEST:
        sys.modules["jax"].clear_caches()
        gc.collect()


def resident_bytes() -> int:
    """Memory of this process where the system tells it, else 0."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.is_file() else 0
