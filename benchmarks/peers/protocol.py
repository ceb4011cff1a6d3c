"""The worker's half of a measurement: prepare once, then run whenever the runner says so.

A worker is a small script in a peer's own virtual environment. It gets its settings as JSON in the first
argument and answers on its standard output with one JSON object a line; whatever a peer prints goes to
standard error instead. The standard library is all that this module needs, so that every peer's environment
can import it.

    runner                          worker
                                    {"import_seconds": ..., "trace_seconds": ..., "compile_seconds": ..., ...}
    {"seed": 1}            ->
                                    {"seconds": ..., "cpu_seconds": ..., "steps": ..., ...}
    {"stop": true}         ->
                                    {"peak_memory_mib": ...}
"""

import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, TextIO

Settings = dict[str, Any]


@dataclass(frozen=True)
class Prepared:
    """What a worker has ready before the first measured run.

    Attributes:
        run: Trains once with the given seed and returns when the result is there; gives numbers to report
            beside the time, among them `steps`.
        trace_seconds: Time to trace, where that can be told apart.
        compile_seconds: Time to compile ahead of the runs.
        packages: Distributions whose versions are to be reported.
    """

    run: Callable[[int], dict[str, float]]
    trace_seconds: float = 0.0
    compile_seconds: float = 0.0
    packages: tuple[str, ...] = field(default=())


def settings() -> Settings:
    """Read the settings that the runner gave, and keep to the processors that they allow."""
    given: Settings = json.loads(sys.argv[1])
    if given.get("cpus"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given["cpus"]])
    return given


def serve(prepare: Callable[[], Prepared]) -> None:
    """Prepare, then measure one run for every line that asks for one.

    Args:
        prepare: Called once, after the imports of the worker; its time is not part of any run.
    """
    replies = _private_stdout()
    import_seconds = _seconds_since_start()
    imported_memory = peak_memory_mib()
    prepared = prepare()
    _reply(
        replies,
        import_seconds=import_seconds,
        trace_seconds=prepared.trace_seconds,
        compile_seconds=prepared.compile_seconds,
        imported_memory_mib=imported_memory,
        versions={name: metadata.version(name) for name in prepared.packages}
        | {"python": platform.python_version()},
    )
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("stop"):
            break
        start, start_cpu = time.perf_counter(), time.process_time()
        numbers = prepared.run(request["seed"])
        seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - start_cpu
        _reply(replies, seconds=seconds, cpu_seconds=cpu_seconds, **numbers)
    _reply(replies, peak_memory_mib=peak_memory_mib())


def compiled(
    function: Callable[..., Any],
    *arguments: Any,  # noqa: ANN401
    static: tuple[int, ...] = (),
    options: dict[str, Any] | None = None,
) -> tuple[Any, float, float]:
    """Trace and compile a JAX function ahead of its first call, with JAX's defaults unless told otherwise.

    Returns:
        The executable, which takes the arguments that are not static, and the seconds to trace and to
        compile.
    """
    import jax

    start = time.perf_counter()
    lowered = jax.jit(function, static_argnums=static, compiler_options=options).lower(*arguments)
    traced = time.perf_counter()
    executable = lowered.compile()
    return executable, traced - start, time.perf_counter() - traced


def peak_memory_mib() -> float:
    """Return the largest resident memory that this process ever had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _private_stdout() -> TextIO:
    """Keep standard output for replies; what anything else prints goes to standard error."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return replies


def _seconds_since_start() -> float:
    """Return how long ago the operating system started this process, to a hundredth of a second."""
    with open("/proc/self/stat") as stat, open("/proc/uptime") as uptime:
        ticks = int(stat.read().rpartition(")")[2].split()[19])
        return float(uptime.read().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")


def _reply(replies: TextIO, **numbers: Any) -> None:  # noqa: ANN401
    replies.write(json.dumps(numbers) + "\n")
    replies.flush()
