"""A resumed run equals one that was never interrupted, or says that it does not."""

import numpy as np
import pytest

from dressage.errors import CheckpointError, DressageError
from dressage.runtime import Engine, RuntimeConfig
from tests.runtime.toys import STEPS, ForgetfulWalk, Rows, Walk, spec


def engine_at(folder, made=None, rows=None, **options):
    sinks = () if rows is None else (rows,)
    return Engine(made or spec(), RuntimeConfig(transport="inline", **options), folder=folder, sinks=sinks)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_resumed_run_equals_the_uninterrupted_one_bit_for_bit(tmp_path, workers):
    with engine_at(None, workers=workers) as engine:
        engine.run(7)
        whole, counters = engine.learner.parameters, engine.counters
    with engine_at(tmp_path, workers=workers) as engine:
        engine.run(3)
    rows = Rows()
    with engine_at(tmp_path, rows=rows, workers=workers) as engine:
        assert engine.resume() == 3
        engine.run(7)
        for name, array in whole.items():
            np.testing.assert_array_equal(engine.learner.parameters[name], array)
        assert engine.counters == counters
    assert rows[0]["event"] == "exact resume: yes"
    assert rows.of("train")[0]["updates"] == 4


def test_episodes_that_were_open_go_on_being_counted(tmp_path):
    rows, resumed = Rows(), Rows()
    with engine_at(None, rows=rows) as engine:
        engine.run(6)
    with engine_at(tmp_path, rows=resumed) as engine:
        engine.run(3)
    with engine_at(tmp_path, rows=resumed) as engine:
        engine.resume()
        engine.run(6)
    for name in ("rollout/episodes", "rollout/episode_return", "rollout/episode_length"):
        whole, parts = ([row.get(name) for row in one.of("train")] for one in (rows, resumed))
        assert whole == parts


def test_without_the_environments_state_a_resumed_run_says_so_and_takes_fresh_seeds(tmp_path):
    made = spec(ForgetfulWalk)
    with engine_at(tmp_path, made) as engine:
        assert engine.run(3).exact_resume == "no (environment state not saved)"
        parameters = engine.learner.parameters["mean"]
    rows = Rows()
    with engine_at(tmp_path, made, rows) as engine:
        assert engine.resume() == 3
        np.testing.assert_array_equal(engine.learner.parameters["mean"], parameters)
        engine.run(5)
    events = [row["event"] for row in rows.of("event")]
    assert events[0].startswith("worker 0 begins anew with seed")
    assert events[1] == "exact resume: no (environment state not saved)"
    assert rows.of("event")[0]["seed"] != 0
    assert rows.of("train")[-1]["steps"] == 5 * 3 * STEPS


def test_checkpoints_come_at_their_interval_and_at_the_end_and_the_latest_are_kept(tmp_path):
    with engine_at(tmp_path, checkpoint_every=2, keep_checkpoints=2) as engine:
        engine.run(7)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["update_00000006", "update_00000007"]


def test_a_draft_of_a_killed_run_is_no_checkpoint(tmp_path):
    with engine_at(tmp_path) as engine:
        engine.run(2)
    (tmp_path / "update_00000009.part").mkdir()
    with engine_at(tmp_path) as engine:
        assert engine.resume() == 2


def test_an_empty_folder_is_an_error(tmp_path):
    with engine_at(tmp_path) as engine, pytest.raises(CheckpointError, match="no complete checkpoint in"):
        engine.resume()


def test_resuming_without_a_folder_is_an_error():
    with engine_at(None) as engine, pytest.raises(DressageError, match="no folder to resume from"):
        engine.resume()


@pytest.mark.parametrize("file", ["policy.pt", "run.npz", "run.json"])
def test_a_file_cut_short_is_refused_by_name(tmp_path, file):
    with engine_at(tmp_path) as engine:
        engine.run(2)
    path = tmp_path / "update_00000002" / file
    path.write_bytes(path.read_bytes()[:-40])
    words = "is incomplete" if file == "run.json" else f"is damaged: {file} differs"
    with engine_at(tmp_path) as engine, pytest.raises(CheckpointError, match=words):
        engine.resume()


def test_a_file_that_is_gone_is_refused(tmp_path):
    with engine_at(tmp_path) as engine:
        engine.run(1)
    (tmp_path / "update_00000001" / "run.npz").unlink()
    with engine_at(tmp_path) as engine, pytest.raises(CheckpointError, match="is incomplete: .*run.npz"):
        engine.resume()


def test_another_number_of_workers_is_refused(tmp_path):
    with engine_at(tmp_path, workers=2) as engine:
        engine.run(1)
    with (
        engine_at(tmp_path, workers=1) as engine,
        pytest.raises(CheckpointError, match="with 2 workers, this one has 1"),
    ):
        engine.resume()


def test_the_walks_state_is_its_whole_future():
    one, other = Walk(1), Walk(2)
    for _ in range(5):
        one.step(np.ones(3))
    other.load_state(one.state())
    from tests.runtime import toys

    state = toys.STREAM.bit_generator.state
    ahead = [one.step(np.ones(3)).observation for _ in range(20)]
    toys.STREAM.bit_generator.state = state
    np.testing.assert_array_equal(ahead, [other.step(np.ones(3)).observation for _ in range(20)])
