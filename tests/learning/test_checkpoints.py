"""Checkpoints: whole or not there, verified when read, and refused in plain words."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.errors import CheckpointError
from dressage.learning import checkpoints
from dressage.learning.checkpoints import Checkpoints
from dressage.learning.records import Fault

ROOT = Path(__file__).parents[2]
NOTE = {"updates": 7, "config": {"GAMMA": 0.99}, "names": ["a", "b"]}


def make_state(scale=1.0):
    """All kinds of leaves that a training state has."""
    generator = np.random.default_rng(0)
    return {
        "params": {"kernel": jnp.asarray(scale * generator.normal(size=(3, 4)), jnp.float32)},
        "count": jnp.int32(5),
        "flags": jnp.array([True, False]),
        "key": jax.random.key(3),
        "keys": jax.random.split(jax.random.key(4), 2),
        "empty": jnp.zeros((0, 3)),
        "half": jnp.array([1.5, -2.25], jnp.bfloat16),
        "host": np.arange(4, dtype=np.float64) * scale,
        "nothing": None,
        "tuple": (jnp.uint32(2**32 - 1), ()),
        "fault": Fault.none(),
    }


def raw(leaf):
    is_key = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)


def assert_same(ours, theirs):
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert (mine.dtype, mine.shape) == (other.dtype, other.shape)
        assert raw(mine).tobytes() == raw(other).tobytes()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with one good checkpoint of step 7; tests work on copies of it."""
    folder = tmp_path_factory.mktemp("saved")
    kept = Checkpoints(folder)
    kept.save(7, make_state(), NOTE)
    kept.close()
    return folder


@pytest.fixture
def copied(saved, tmp_path):
    folder = tmp_path / "checkpoints"
    shutil.copytree(saved, folder)
    return folder


def files_of(folder):
    return sorted(path for path in (folder / "7").rglob("*") if path.is_file())


def refused(folder, state_like=None):
    """The text of the refusal, which names the checkpoint and shows no library's own words."""
    with pytest.raises(CheckpointError) as caught:
        Checkpoints(folder).restore(make_state(0.0) if state_like is None else state_like)
    text = str(caught.value)
    assert str(folder / "7") in text
    assert "Traceback" not in text
    assert "orbax" not in text.lower()
    assert "\n" not in text
    return text


def test_a_state_comes_back_bit_for_bit_with_its_keys_and_dtypes(saved):
    state, note = Checkpoints(saved).restore(make_state(0.0))
    assert_same(state, make_state())
    assert note == NOTE
    assert jax.random.uniform(state["key"]) == jax.random.uniform(jax.random.key(3))
    assert state["key"].dtype == jax.random.key(3).dtype
    assert isinstance(state["host"], np.ndarray)


def test_an_empty_folder_has_no_latest_and_says_so(tmp_path):
    kept = Checkpoints(tmp_path / "none")
    assert kept.latest() is None
    with pytest.raises(CheckpointError, match="no complete checkpoint in .*none"):
        kept.restore(make_state())


def test_a_step_that_was_never_saved_is_refused_by_its_path(saved):
    with pytest.raises(CheckpointError, match=f"{saved}/8 is incomplete"):
        Checkpoints(saved).restore(make_state(), 8)


def test_only_the_last_few_are_kept_and_any_of_them_can_be_read(tmp_path):
    kept = Checkpoints(tmp_path, keep=2)
    for step in (1, 2, 10):
        kept.save(step, {"w": jnp.full(3, step)}, {"step": step})
    folders = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert folders == {"2", "10"}
    assert kept.latest() == 10
    for step in (2, 10):
        state, note = kept.restore({"w": jnp.zeros(3, jnp.int32)}, step)
        np.testing.assert_array_equal(state["w"], [step] * 3)
        assert note == {"step": step}
    reopened = Checkpoints(tmp_path, keep=2)
    assert reopened.latest() == 10


def test_what_another_process_would_see_is_complete_once_save_returns(tmp_path):
    kept = Checkpoints(tmp_path)
    kept.save(1, make_state(), NOTE)
    assert_same(Checkpoints(tmp_path).restore(make_state(0.0))[0], make_state())


def test_any_file_cut_short_is_refused(copied):
    for path in files_of(copied):
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        assert refused_or_same(copied), path
        path.write_bytes(content)


def test_a_file_of_length_zero_is_refused_as_incomplete(copied):
    for path in files_of(copied):
        content = path.read_bytes()
        path.write_bytes(b"")
        assert refused_or_same(copied), path
        path.write_bytes(content)


def refused_or_same(folder):
    """Damage must be noticed, unless it lies in a file on which nothing that comes back depends."""
    try:
        state, note = Checkpoints(folder).restore(make_state(0.0))
    except CheckpointError as error:
        return str(folder / "7") in str(error)
    assert_same(state, make_state())
    return note == NOTE


def test_an_altered_byte_anywhere_is_refused_or_harmless(copied):
    generator = np.random.default_rng(0)
    for path in files_of(copied):
        content = bytearray(path.read_bytes())
        for place in generator.integers(0, len(content), min(6, len(content))):
            altered = bytearray(content)
            altered[place] ^= 1 << int(generator.integers(8))
            path.write_bytes(altered)
            assert refused_or_same(copied), (path, place)
        path.write_bytes(content)


def description_of(folder):
    (path,) = [
        path for path in files_of(folder) if path.parent.name == "content" and '"note"' in path.read_text()
    ]
    return path, json.loads(path.read_text())


def test_arrays_that_differ_from_their_checksum_are_refused_by_name(copied):
    # As if the stored bytes had changed: the description is whole, but speaks of another array.
    path, content = description_of(copied)
    content["arrays"]["count"]["sha256"] = "0" * 64
    path.write_text(json.dumps(content | {"sha256": checkpoints._content_digest(content)}))
    text = refused(copied)
    assert "is damaged: array 'count' differs from its checksum" in text


def test_an_altered_note_is_refused(copied):
    path, _ = description_of(copied)
    path.write_text(path.read_text().replace("0.99", "0.98"))
    assert "is damaged" in refused(copied)


def test_a_missing_description_is_refused_as_incomplete(copied):
    shutil.rmtree(copied / "7" / "content")
    assert "is incomplete: its description cannot be read" in refused(copied)


def test_missing_arrays_are_refused_as_incomplete(copied):
    shutil.rmtree(copied / "7" / "state")
    assert "is incomplete: its arrays cannot be read" in refused(copied)


def test_another_structure_is_refused_with_what_lacks_and_what_is_extra(copied):
    other = make_state() | {"velocity": jnp.zeros(2)}
    del other["count"]
    text = refused(copied, other)
    assert "made for another run" in text
    assert "lacks ['velocity']" in text
    assert "has ['count'] besides" in text


@pytest.mark.parametrize(
    ("name", "leaf", "described"),
    [
        ("flags", jnp.zeros(3, bool), "bool[2] there, but bool[3]"),
        ("count", jnp.float32(0), "int32[] there, but float32[]"),
        ("empty", jnp.zeros((0, 4)), "float32[0, 3] there, but float32[0, 4]"),
    ],
)
def test_another_shape_or_dtype_is_refused_with_both(copied, name, leaf, described):
    assert described in refused(copied, make_state() | {name: leaf})


def test_a_crash_before_the_last_rename_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    Checkpoints(tmp_path).save(1, make_state(), NOTE)

    def crash(*names, **options):
        raise KeyboardInterrupt

    for owner in (os, Path):
        for name in ("rename", "replace"):
            monkeypatch.setattr(owner, name, crash)
    with pytest.raises(BaseException):  # noqa: B017 (the crash, in whatever Orbax wraps it)
        Checkpoints(tmp_path).save(2, make_state(2.0), NOTE)
    monkeypatch.undo()
    kept = Checkpoints(tmp_path)
    assert kept.latest() == 1
    assert_same(kept.restore(make_state(0.0))[0], make_state())
    kept.save(2, make_state(2.0), NOTE)
    assert_same(kept.restore(make_state(0.0))[0], make_state(2.0))


SAVER = """
import sys
import jax.numpy as jnp
from dressage.learning.checkpoints import Checkpoints
kept = Checkpoints(sys.argv[1], keep=2)
for step in range(1, 100_000):
    kept.save(step, {"w": jnp.full((300, 100), step, jnp.float32)}, {"step": step})
    print(step, flush=True)
"""


@pytest.mark.slow
def test_a_process_killed_at_any_moment_of_saving_leaves_a_checkpoint_that_restores(tmp_path):
    generator = np.random.default_rng(0)
    for life in range(8):
        folder = tmp_path / str(life)
        command = [sys.executable, "-c", SAVER, str(folder)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        told = process.stdout.readline()
        time.sleep(float(generator.uniform(0.0, 0.6)))
        process.send_signal(signal.SIGKILL)
        told = (told + process.stdout.read()).split()
        process.wait()
        process.stdout.close()
        kept = Checkpoints(folder, keep=2)
        latest = kept.latest()
        assert latest >= int(told[-1]), "what save returned from must be there"
        state, note = kept.restore({"w": jnp.zeros((300, 100))})
        assert note == {"step": latest}
        np.testing.assert_array_equal(state["w"], np.full((300, 100), latest))
        kept.save(latest + 1, state, note)
        assert kept.latest() == latest + 1
        kept.close()


def test_later_checkpoints_are_discarded_when_training_goes_on_from_an_older_one(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=3)
    for step in (1, 2, 3, 4):
        checkpoints.save(step, {"x": jnp.float32(step)}, {})
    assert checkpoints.steps() == (2, 3, 4)
    checkpoints.discard_after(2)
    assert checkpoints.steps() == (2,)
    checkpoints.save(3, {"x": jnp.float32(9)}, {})
    assert float(checkpoints.restore({"x": jnp.float32(0)})[0]["x"]) == 9.0
    checkpoints.close()
