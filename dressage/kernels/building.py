"""Compiles the kernels' source for this processor, once, and loads what came out.

A wheel for every processor would hold a kernel that is right for none. The machine's own C++ compiler makes
it in a few seconds, where there is one; everything works without, at the rate of XLA's own products.
"""

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

from dressage.caches import user_cache
from dressage.processor import processor_facts

KERNELS_VARIABLE = "DRESSAGE_KERNELS"
"""The environment variable that turns the kernels off: `DRESSAGE_KERNELS=off`."""

SOURCE = Path(__file__).with_name("kernels.cc")

COMPILERS = ("c++", "g++", "clang++")

FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared", "-DNDEBUG")

PROCESSOR_FLAGS = ("-march=native", "-mcpu=native")
"""How compilers are told to use all that this processor can do; the first that one takes."""

PATIENCE = 120.0
"""Seconds after which a compiler is given up."""


class Kernels(NamedTuple):
    """The kernels of this process.

    Attributes:
        library: What was compiled; None where there is nothing to use.
        about: Where it lies, or why there is none and what would mend it.
    """

    library: ctypes.CDLL | None
    about: str


@cache
def kernels() -> Kernels:
    """Load the kernels, and compile them where this machine has not done so yet.

    Compiled kernels lie in the user's cache, under a name made of the source, the compiler, JAX's version and
    the processor, so that what one machine made is never run on another that cannot. Asked once a process.
    """
    if os.environ.get(KERNELS_VARIABLE, "").lower() in {"off", "0", "false", "no"}:
        return Kernels(None, f"turned off by {KERNELS_VARIABLE}")
    compiler = _compiler()
    if compiler is None:
        return Kernels(
            None, f"no C++ compiler found ({', '.join(COMPILERS)}, or CXX); install one to have them"
        )
    try:
        return _load(compiler)
    except (OSError, subprocess.SubprocessError, RuntimeError) as error:  # the last where there is no home
        return Kernels(None, f"{' '.join(compiler)} could not make them: {_said(error)}")


def _compiler() -> tuple[str, ...] | None:
    """Return how to call a C++ compiler: as `CXX` says, or the first of the usual ones."""
    given = shlex.split(os.environ.get("CXX", ""))
    if given and shutil.which(given[0]):
        return tuple(given)
    found = (shutil.which(name) for name in COMPILERS)
    return next(((path,) for path in found if path is not None), None)


def _load(compiler: tuple[str, ...]) -> Kernels:
    """Load the compiled library, made now if the cache has none.

    Raises:
        OSError: If it cannot be written or loaded.
        subprocess.SubprocessError: If the compiler fails or takes too long.
    """
    path = user_cache() / "kernels" / f"{SOURCE.stem}-{_fingerprint(compiler)}.so"
    if path.is_file():
        return Kernels(ctypes.CDLL(str(path)), str(path))
    kept = _can_keep(path.parent)
    with tempfile.TemporaryDirectory(prefix="dressage-kernels-", dir=path.parent if kept else None) as folder:
        draft = Path(folder) / path.name
        _compile(compiler, draft)
        if not kept:
            about = f"compiled for this process alone: {path.parent} cannot be written to"
            return Kernels(ctypes.CDLL(str(draft)), about)
        # Two processes may come here at once; the later one puts the same in the same place.
        os.replace(draft, path)
    return Kernels(ctypes.CDLL(str(path)), str(path))


def _can_keep(folder: Path) -> bool:
    """Make a folder of the cache; False where it cannot be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _compile(compiler: tuple[str, ...], target: Path) -> None:
    import jax.ffi

    headers = ("-isystem", jax.ffi.include_dir())
    for flag in PROCESSOR_FLAGS:
        command = (*compiler, *FLAGS, flag, *headers, "-o", str(target), str(SOURCE))
        done = subprocess.run(command, capture_output=True, errors="replace", timeout=PATIENCE, check=False)
        if done.returncode == 0:
            return
    raise subprocess.CalledProcessError(done.returncode, command, done.stdout, done.stderr)


def _fingerprint(compiler: tuple[str, ...]) -> str:
    """Name all that the compiled library depends on."""
    import jaxlib.version

    version = subprocess.run(
        (*compiler, "--version"), capture_output=True, errors="replace", timeout=PATIENCE, check=False
    ).stdout
    files = sorted((SOURCE, *SOURCE.parent.glob("*.h")))
    texts = [file.read_text(encoding="utf-8") for file in files]
    made_by = (*compiler, version, jaxlib.version.__version__, _processor(), *FLAGS, *PROCESSOR_FLAGS)
    return hashlib.sha256("\0".join((*texts, *made_by)).encode()).hexdigest()[:16]


def _processor() -> str:
    """Name what decides which instructions run here."""
    facts = processor_facts()
    told = [facts[key] for key in ("model name", "cpu family", "model", "flags", "Features") if key in facts]
    return "\n".join((platform.machine(), platform.processor(), *told))


def _said(error: Exception) -> str:
    """Return the first line that says what went wrong."""
    text = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
    lines = [line for line in (text or str(error)).splitlines() if line.strip()]
    return next((line for line in lines if "error" in line), lines[0] if lines else str(error))
