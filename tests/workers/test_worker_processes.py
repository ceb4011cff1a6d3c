"""Worker processes give what one process gives; whatever befalls them is told and leaves nothing behind."""

import functools
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from dressage.errors import ConfigError, EnvironmentContractError, EnvironmentRaisedError, WorkerLostError
from dressage.workers import make_workers
from tests.process_watch import is_there, wait_until
from tests.workers.parallel_toys import BrokenMaker, Counting, Exiting, Hanging, OfProcess, Raising

SPREAD = "pettingzoo:mpe2.simple_spread_v3"


def actions(generator, copies):
    return [generator.integers(-1, 2, (1, copies)), generator.uniform(-1, 1, (1, copies, 2))]


def zeros(copies):
    return [np.zeros((1, copies), np.int64), np.zeros((1, copies, 2))]


def everything(workers, copies=3, make_env=Counting):
    with make_workers(make_env, copies, num_workers=workers) as group:
        return everything_of(group)


def everything_of(group, steps=40):
    """Return all arrays that a seeded run gives, in order."""
    generator = np.random.default_rng(0)
    arrays = [one.features for one in group.reset(range(group.num_envs))]
    for _ in range(steps):
        step = group.step(actions(generator, group.num_envs))
        arrays += [step.ended, *(array for one in step.groups for array in arrays_of(one))]
    return arrays


def arrays_of(record):
    names = set(type(record).__dataclass_fields__) - {"observation"}
    rest = [getattr(record, name) for name in sorted(names)]
    return [record.observation.features, record.observation.alive, *rest]


@pytest.mark.parametrize("workers", [1, 2])
def test_processes_give_bit_for_bit_what_one_process_gives(workers):
    inline, spread_out = everything(0), everything(workers)
    assert len(inline) == len(spread_out) > 40
    for one, other in zip(inline, spread_out, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def test_workers_are_processes_of_their_own_with_one_thread_and_without_jax():
    with make_workers(OfProcess, 4, num_workers=2) as group:
        rows = group.reset(range(4))[0].features[0]
        pids = rows[:, 0].astype(int).tolist()
        assert pids[0] == pids[1] != pids[2] == pids[3]
        assert os.getpid() not in pids
        assert rows[:, 1].tolist() == [1.0] * 4
        assert rows[:, 2].tolist() == [0.0] * 4
    assert not any(is_there(pid) for pid in pids)
    assert "OMP_NUM_THREADS" not in os.environ or os.environ["OMP_NUM_THREADS"]


def test_split_workers_give_what_they_give_together():
    together = everything(2)
    with make_workers(Counting, 3, num_workers=2) as group:
        apart = split_steps(group.split(), 40)
    for one, other in zip(together[-len(apart) :], apart, strict=True):
        np.testing.assert_array_equal(one, other)


def split_steps(parts, steps):
    """As `everything_of` behind the reset; sent out before any answers, and taken in from the last."""
    assert [part.num_envs for part in parts] == [1, 2]
    for part, seeds in zip(parts, [[0], [1, 2]], strict=True):
        part.reset(seeds)
    generator, arrays = np.random.default_rng(0), []
    for _ in range(steps):
        whole = actions(generator, 3)
        parts[0].send([taken[:, :1] for taken in whole])
        parts[1].send([taken[:, 1:] for taken in whole])
        second, first = parts[1].receive(), parts[0].receive()
        arrays.append(np.concatenate([first.ended, second.ended]))
        pairs = zip(first.groups, second.groups, strict=True)
        arrays += [
            np.concatenate(two, 1) for pair in pairs for two in zip(*map(arrays_of, pair), strict=True)
        ]
    return arrays


def test_a_group_in_one_process_is_one_part():
    with make_workers(Counting, 3) as group:
        assert group.split() == (group,)


def test_a_split_worker_is_named_by_the_numbers_of_its_copies():
    group = make_workers(Counting, 3, num_workers=2)
    last = group.split()[1]
    last.reset([1, 2])
    taken = zeros(2)
    taken[1][0, 1] = np.nan
    with pytest.raises(EnvironmentContractError, match="Environment copy 2, step 0"):
        last.step(taken)
    group.close()


def test_a_task_name_is_made_in_the_workers():
    with make_workers(SPREAD, 2, num_workers=2) as group, make_workers(SPREAD, 2) as inline:
        assert group.layout == inline.layout
        first, same = group.reset([1, 2])[0].features, inline.reset([1, 2])[0].features
        np.testing.assert_array_equal(first, same)
        taken = [np.ones((3, 2), np.int64)]
        for _ in range(26):  # episodes last 25 steps
            one, other = group.step(taken), inline.step(taken)
            np.testing.assert_array_equal(
                one.groups[0].observation.features, other.groups[0].observation.features
            )
            np.testing.assert_array_equal(one.ended, other.ended)


def test_a_worker_that_exits_is_named_with_copies_process_and_exit_code():
    group = make_workers(Exiting, 3, num_workers=2)
    group.reset(range(3))
    group.step(zeros(3))
    with pytest.raises(
        WorkerLostError,
        match=r"Worker (0 \(environment copy 0|1 \(environment copies 1 to 2), pid \d+\) "
        "ended with exit code 7 while stepping",  # Both end; either may be seen first.
    ):
        group.step(zeros(3))
    with pytest.raises(RuntimeError, match="closed"):
        group.step(zeros(3))


def test_a_killed_worker_is_named_with_its_signal():
    group = make_workers(OfProcess, 3, num_workers=2)
    pid = int(group.reset(range(3))[0].features[0, 1, 0])
    os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: not is_there(pid))
    with pytest.raises(
        WorkerLostError,
        match=rf"Worker 1 \(environment copies 1 to 2, pid {pid}\) ended with exit code -9 \(SIGKILL\)",
    ):
        group.step(zeros(3))


def test_a_worker_that_hangs_is_named_and_ended():
    group = make_workers(Hanging, 2, num_workers=1, timeout=3.0)
    group.reset(range(2))
    group.step(zeros(2))
    with pytest.raises(
        WorkerLostError, match=r"Worker 0 .*no answer within 3 s while stepping; .*raise the timeout"
    ) as caught:
        group.step(zeros(2))
    pid = int(str(caught.value).partition("pid ")[2].partition(")")[0])
    assert not is_there(pid)


def test_what_an_environment_raises_in_a_worker_arrives_with_its_trace():
    group = make_workers(Raising, 3, num_workers=2)
    group.reset(range(3))
    group.step(zeros(3))
    with pytest.raises(
        EnvironmentRaisedError, match=r"copy [01], step 1 .*KeyError: 'no such wheel'"
    ) as caught:
        group.step(zeros(3))
    assert "raise_at_second_step" in caught.value.__notes__[0]


def test_a_maker_that_fails_in_a_worker_says_what_it_raised():
    with make_workers(Counting, 1) as group:
        layout = group.layout
    with pytest.raises(
        EnvironmentRaisedError, match="Making an environment raised FileNotFoundError: track.xml"
    ):
        make_workers(BrokenMaker(), 2, layout, num_workers=1)


def test_a_maker_that_cannot_be_sent_is_refused_with_the_remedy():
    with pytest.raises(ConfigError, match=r"<lambda>.*can't be sent to worker processes .*num_workers=0"):
        make_workers(lambda: Counting(), 2, num_workers=1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_envs": 0}, "num_envs must be an integer >= 1, got 0"),
        ({"num_workers": 3}, r"num_workers must be an integer from 0 .* to num_envs = 2, got 3"),
        ({"num_workers": -1}, "num_workers must be"),
        ({"timeout": 0}, "timeout must be a number of seconds > 0, got 0"),
    ],
)
def test_numbers_out_of_range_are_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        make_workers(**{"make_env": Counting, "num_envs": 2, **options})


def test_an_unknown_task_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="simple_spread_v3"):
        make_workers("pettingzoo:mpe2.simple_spraed_v3", 2)


def test_makers_with_arguments_may_be_sent():
    with make_workers(functools.partial(Counting, size=5), 2, num_workers=1) as group:
        assert group.reset([0, 1])[0].features.shape == (1, 2, 5)


def test_seeds_must_be_one_for_each_copy():
    with (
        make_workers(Counting, 2) as group,
        pytest.raises(ConfigError, match=r"reset needs 2 seeds, .* got \[1\]"),
    ):
        group.reset([1])


def test_a_broken_contract_in_a_worker_names_the_copy_by_its_number_in_the_group():
    with make_workers(Counting, 4, num_workers=2) as group:
        group.reset(range(4))
        bad = zeros(4)
        bad[0][0, 3] = 9
        with pytest.raises(EnvironmentContractError, match="copy 3"):
            group.step(bad)


PARENT = """
import os, signal, sys
from dressage.workers import make_workers
from tests.workers.parallel_toys import Hanging, OfProcess
import numpy as np

if __name__ == "__main__":
    make, hang = (Hanging, True) if sys.argv[1] == "hanging" else (OfProcess, False)
    group = make_workers(make, 2, num_workers=2)
    first = group.reset([0, 1])[0].features[0, :, 0]
    pids = [worker._process.pid for worker in group._stepper._workers]
    step = [np.zeros((1, 2), np.int64), np.zeros((1, 2, 2))]
    group.step(step)
    if hang:
        group.send(step)
    print(*pids, flush=True)
    if sys.argv[2] == "leave":
        sys.exit(0)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("environment", "end"), [("plain", "kill"), ("hanging", "kill"), ("plain", "leave")])
def test_workers_end_with_their_parent_however_that_ends_and_nothing_is_leaked(tmp_path, environment, end):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    before = set(os.listdir("/dev/shm"))
    run = [sys.executable, "-W", "error", str(script), environment, end]
    paths = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])}
    finished = subprocess.run(run, capture_output=True, text=True, timeout=120, check=False, env=paths)
    assert finished.returncode == (0 if end == "leave" else -signal.SIGKILL), finished.stderr
    pids = [int(pid) for pid in finished.stdout.split()]
    assert len(pids) == 2
    assert wait_until(lambda: not any(is_there(pid) for pid in pids))
    assert "leaked" not in finished.stderr
    assert {name for name in set(os.listdir("/dev/shm")) - before if name.startswith("pym")} == set()
