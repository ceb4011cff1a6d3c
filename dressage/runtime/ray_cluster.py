"""Joins a Ray cluster, or starts one on this machine, and says in our words what became of its actors."""

import os
import subprocess
import sys
import uuid
from collections.abc import Sequence
from typing import Any

from dressage.errors import DressageError, MissingExtraError, WorkerLostError, install_command
from dressage.runtime import ray_guard
from dressage.runtime.ray_address import REMEDY, check_head
from dressage.workers.processes import ONE_THREAD

try:
    import ray
    from ray import exceptions
except ImportError as error:
    raise MissingExtraError(f"Workers on Ray need it. Install it with: {install_command('ray')}") from error

LOCAL = "local"
"""The address that stands for a cluster started on this machine and ended with the run."""


class Cluster:
    """A connection to a Ray cluster.

    Args:
        address: `local`, or a head's address such as `10.0.0.1:6379`.
        workers: How many workers will be started; a local cluster gets a CPU for each.
        timeout: Seconds to wait for a head to answer.

    Raises:
        DressageError: If no head answers, or it turns this process away.
    """

    def __init__(self, address: str, workers: int, timeout: float) -> None:
        self._mine = not ray.is_initialized()
        self._guard: subprocess.Popen[bytes] | None = None
        if not self._mine:
            return
        quiet: dict[str, Any] = {
            "include_dashboard": False,
            "log_to_driver": False,
            "configure_logging": False,
            "namespace": f"dressage-{uuid.uuid4().hex}",
        }
        if address == LOCAL:
            ray.init(address=LOCAL, num_cpus=max(workers, os.cpu_count() or 1), **quiet)
            self._guard = _start_guard()
            return
        check_head(address, timeout)
        try:
            ray.init(address=address, **quiet)
        except ConnectionError as error:
            raise DressageError(
                f"No Ray cluster lets this process in at {address!r} ({error}). Where a head runs there, it "
                "asks for its token: give every machine the same one, or set RAY_AUTH_MODE=disabled before "
                f"each `ray start` and before the run. Otherwise: {REMEDY}"
            ) from error

    def actor(self, owner: type, *arguments: object) -> Any:  # noqa: ANN401 (Ray's handles have no types)
        """Start an actor of a class on one CPU, with one thread and JAX, if ever, on the CPU.

        It is not restarted by Ray and no call is repeated: what an actor held is lost with it, and only the
        engine knows how to replace it.
        """
        variables = {**ONE_THREAD, "JAX_PLATFORMS": "cpu"}
        options = {
            "num_cpus": 1,
            "max_restarts": 0,
            "max_task_retries": 0,
            "runtime_env": {"env_vars": variables},
        }
        return ray.remote(owner).options(**options).remote(*arguments)

    def close(self, actors: Sequence[Any]) -> None:
        """End actors, and the cluster if it was started or joined here."""
        if ray.is_initialized():
            for actor in actors:
                ray.kill(actor)
            if self._mine:
                ray.shutdown()
        if self._guard is not None:
            self._guard.communicate()  # The end of its input sends it home.
            self._guard = None


def _start_guard() -> "subprocess.Popen[bytes] | None":
    """Start what ends Ray's helpers should this process be killed; only Linux tells who started whom."""
    if sys.platform != "linux":
        return None
    command = [sys.executable, "-S", "-E", ray_guard.__file__, str(os.getpid())]
    return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)


def outcome(reference: Any, name: str, timeout: float, doing: str, left: float | None = None) -> Any:  # noqa: ANN401
    """Wait for what an actor's call returns.

    Args:
        reference: The call.
        name: The worker, for error texts.
        timeout: Seconds to wait at most.
        doing: What the worker does, for error texts.
        left: How much of `timeout` is left, where some of it has gone by.

    Raises:
        WorkerLostError: If the actor died, or gave no answer in time.
        DressageError: What the call raised.
    """
    try:
        return ray.get(reference, timeout=timeout if left is None else left)
    except exceptions.GetTimeoutError as error:
        raise late(name, timeout, doing) from error
    except exceptions.RayActorError as error:
        reason = " ".join(str(error).split())
        raise WorkerLostError(f"{name} ended while {doing}: {reason}") from error
    except exceptions.RayTaskError as error:
        cause = error.cause
        if isinstance(cause, DressageError):
            raise cause from None
        raised = DressageError(f"{name} raised {type(cause).__name__}: {cause}")
        raised.add_note(str(error))
        raise raised from None


def late(name: str, timeout: float, doing: str) -> WorkerLostError:
    """Return an error that says that no answer came in time."""
    hint = (
        " The cluster may have no free CPU for it: compare `ray status`."
        if doing == "starting"
        else " If its environment needs longer, raise timeout_s."
    )
    error = WorkerLostError(f"{name} gave no answer within {timeout:g} s while {doing}.{hint}")
    error.hung = True
    return error
