"""A long run whose workers are killed again and again: does everything add up at its end?

Trains rsl_rl's PPO on the torch pendulum and kills one worker after another by SIGKILL. At the end it checks
that all steps are accounted for, that every kill was survived, that the learner's memory has not grown after
the first part of the run, and that no process is left over. It exits with 1 where something does not hold.

    python benchmarks/soak.py [--minutes 30] [--kill-every 120] [--workers 2] [--address local]
"""

import argparse
import functools
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rsl_runtime import make_pendulum, training_config

from dressage.policy import PolicyConfig
from dressage.policy.rsl_rl_policy.rsl_rl_policy import RSLRLPolicy
from dressage.runtime import Engine, RunSpec, RuntimeConfig

MIB = 2**20


@dataclass
class Soak:
    """Kills workers when it is time and remembers how much memory the learner took.

    Attributes:
        engine: What trains.
        minutes: How long.
        kill_every: Seconds between two kills.
        settle: Seconds after which memory must stay flat.
    """

    engine: Engine
    minutes: float
    kill_every: float
    settle: float
    kills: int = 0
    began: float = field(default_factory=time.monotonic)
    memory: list[tuple[float, float]] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    uneven: int = 0

    def after_update(self, row: Mapping[str, Any]) -> bool:
        """Look at an update's row; returns whether the time is over."""
        elapsed = time.monotonic() - self.began
        self.seen |= set(self.engine.worker_pids)
        self.memory.append((elapsed, resident_mib()))
        accounted = row["runtime/used_steps"] + row["runtime/dropped_steps"]
        self.uneven += row["runtime/collected_steps"] != accounted
        if elapsed >= (self.kills + 1) * self.kill_every:
            pids = self.engine.worker_pids
            os.kill(pids[self.kills % len(pids)], signal.SIGKILL)
            self.kills += 1
            print(
                f"{elapsed:7.0f} s: killed worker {self.kills % len(pids)}, update {row['updates']}",
                flush=True,
            )
        return elapsed >= self.minutes * 60

    def growth(self) -> float:
        """Return by how many MiB the learner's median memory grew between the first and the last part."""
        settled = [mib for elapsed, mib in self.memory if elapsed >= self.settle]
        part = max(1, len(settled) // 5)
        first, last = sorted(settled[:part]), sorted(settled[-part:])
        return last[part // 2] - first[part // 2]


def resident_mib() -> float:
    """Return the memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


def left_over(pids: set[int], patience: float = 30.0) -> list[int]:
    """Return those of the processes that are still there, zombies aside, after some seconds at most."""
    deadline = time.monotonic() + patience
    there = [pid for pid in sorted(pids) if is_there(pid)]
    while there and time.monotonic() < deadline:
        time.sleep(0.5)
        there = [pid for pid in there if is_there(pid)]
    return there


def is_there(pid: int) -> bool:
    """Whether there is such a process and it has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def main() -> None:
    """Train, kill, check."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--kill-every", type=float, default=120.0, help="seconds")
    parser.add_argument(
        "--settle", type=float, default=300.0, help="seconds after which memory must stay flat"
    )
    parser.add_argument("--tolerance", type=float, default=8.0, help="MiB that it may grow all the same")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--envs", type=int, default=64, help="environments of each worker")
    parser.add_argument("--rollout-mode", choices=["sync", "async"], default="sync")
    parser.add_argument("--address", help="a Ray cluster; none uses processes of this machine")
    given = parser.parse_args()
    if given.settle >= 60 * given.minutes:
        parser.error(f"--settle {given.settle:g} leaves nothing of --minutes {given.minutes:g} to judge by.")
    torch.set_num_threads(1)
    policy = PolicyConfig(policy_kwargs=training_config(), rollout_mode=given.rollout_mode)
    spec = RunSpec(RSLRLPolicy, policy, functools.partial(make_pendulum, num_envs=given.envs))
    config = RuntimeConfig(
        workers=given.workers,
        transport=None if given.address else "processes",
        address=given.address,
        restart_budget=10**6,
    )
    with Engine(spec, config) as engine:
        soak = Soak(engine, given.minutes, given.kill_every, given.settle)
        report = engine.run(10**9, soak.after_update)
        counters = engine.counters
        soak.seen |= set(engine.worker_pids)
    rest = left_over(soak.seen)
    checks = {
        "every update: collected == used + dropped": soak.uneven == 0,
        "at the end: collected == used + dropped": counters.collected_steps
        == counters.used_steps + counters.dropped_steps,
        "every kill was survived": counters.lost_workers >= soak.kills - 1,
        f"memory grew by {soak.growth():.1f} MiB after {given.settle:g} s": soak.growth() <= given.tolerance,
        f"left over of {len(soak.seen)} processes: {rest}": not rest,
    }
    print(f"\n{report.updates} updates, {counters}")
    for text, holds in checks.items():
        print(("holds   " if holds else "BROKEN  ") + text)
    sys.exit(0 if all(checks.values()) else 1)


if __name__ == "__main__":
    main()
