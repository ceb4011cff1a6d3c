"""Owns what happens before JAX starts: the folder of compiled programs, and what the run's machine is."""

import os
import platform
from importlib import metadata
from pathlib import Path

from dressage.caches import user_cache
from dressage.processor import processor_facts

CACHE_VARIABLE = "JAX_COMPILATION_CACHE_DIR"

CORE_PACKAGES = ("dressage", "jax", "jaxlib", "flax", "optax", "numpy", "gymnasium")
"""Packages whose version can change what a run learns."""


def cache_folder() -> Path:
    """Return where compiled programs are kept: `JAX_COMPILATION_CACHE_DIR`, or the user's cache folder."""
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        return Path(given)
    return user_cache() / "xla"


def start_jax() -> None:
    """Import JAX with a persistent cache of compiled programs, so that the next start compiles nothing."""
    import jax

    jax.config.update("jax_compilation_cache_dir", str(cache_folder()))
    # JAX keeps only what took a second to compile; here the many small programs of a start count too.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def version_of(package: str) -> str | None:
    """Return the installed version of a package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def versions(task: str) -> dict[str, str]:
    """Return the versions that a run depends on.

    Args:
        task: The task's name; the package before its colon counts too.
    """
    packages = list(CORE_PACKAGES)
    ecosystem = task.partition(":")[0]
    if ":" in task and version_of(ecosystem) and ecosystem not in packages:
        packages.append(ecosystem)
    found = {package: version_of(package) or "not installed" for package in packages}
    return {"python": platform.python_version(), **found}


def machine() -> dict[str, str]:
    """Return what this process runs on: system, processor, cores that it may use, JAX devices."""
    import jax

    return {
        "system": platform.platform(terse=True),
        "processor": _processor(),
        "cores": str(usable_cores()),
        "devices": ", ".join(str(device) for device in jax.devices()),
    }


def usable_cores() -> int:
    """Return the number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    return processor_facts().get("model name") or platform.processor() or platform.machine()
