"""Owns the folder of compiled programs that one run of the tests shares among its workers.

Most of the suite's time is compilation, often of one program in several tests. The folder is new in every
run, whatever the environment says, so that nothing depends on what an earlier run compiled.
"""

import os
import shutil
import tempfile

FOLDER = "JAX_COMPILATION_CACHE_DIR"
STARTED_BY_A_RUN = "PYTEST_XDIST_WORKER" in os.environ
"""A worker inherits the variables, as do the processes that tests start."""


def variables():
    """Return the variables by which JAX, once imported, shares all programs through a new folder."""
    if STARTED_BY_A_RUN:
        return {}
    return {
        FOLDER: tempfile.mkdtemp(prefix="dressage-tests-xla-"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


def remove():
    """Delete the folder where this process made it."""
    if not STARTED_BY_A_RUN:
        shutil.rmtree(os.environ[FOLDER], ignore_errors=True)
