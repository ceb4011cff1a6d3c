"""Policies on disk: equal bits after a round trip, refusal of damage, and no moment without a policy."""

import os
import pickle
import subprocess
import sys

import gymnasium
import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

from dressage.errors import CheckpointError
from dressage.learning import policy_files
from dressage.learning.policy_files import write_policy_file
from dressage.ppo import Policy
from tests.ppo.small_tasks import assert_same_bits
from tests.ppo.test_policy import SCALING, observations, policy_for

KINDS = {
    "gaussian": (gymnasium.spaces.Box(np.float32([-2, 0.1]), np.float32([5, 1])), {}),
    "dependent": (
        gymnasium.spaces.Box(-1, 1, (2, 2)),
        {"STATE_INDEPENDENT_STD": False, "NUM_HIDDEN_LAYERS": 3},
    ),
    "unbounded": (gymnasium.spaces.Box(-np.inf, np.inf, (1,)), {"SQUASH": False}),
    "categorical": (gymnasium.spaces.Discrete(3, start=-1), {"HIDDEN_ACTIVATION": "relu"}),
    "factored": (gymnasium.spaces.MultiDiscrete([2, 3], start=[1, -1]), {}),
}
OTHER_PROCESS = """
import sys
import jax, numpy as np
from dressage.ppo import Policy
policy = Policy.load(sys.argv[1])
obs = np.load(sys.argv[2])
drawn = policy.get_action(obs, jax.random.key(7))
np.savez(sys.argv[3], mode=policy.get_action(obs), drawn=drawn, value=policy.value(obs))
"""


@pytest.fixture
def policy():
    return policy_for(gymnasium.spaces.Box(-1, 1, (2,)), scaling=SCALING)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scaling", [None, SCALING], ids=["raw", "normalised"])
def test_a_round_trip_gives_the_same_policy_bit_for_bit(tmp_path, kind, scaling):
    space, changes = KINDS[kind]
    policy = policy_for(space, scaling=scaling, **changes)
    policy.save(tmp_path / "deep" / "policy")
    loaded = Policy.load(str(tmp_path / "deep" / "policy"))
    assert_same_bits(loaded, policy)
    for one, other in zip(jax.tree.leaves(loaded), jax.tree.leaves(policy), strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
    np.testing.assert_array_equal(loaded.get_action(observations(8)), policy.get_action(observations(8)))


@pytest.mark.slow
def test_a_new_process_acts_the_same(tmp_path, policy):
    policy.save(tmp_path / "policy")
    obs = observations(32) * 20 + 50
    np.save(tmp_path / "obs.npy", obs)
    arguments = [tmp_path / "policy", tmp_path / "obs.npy", tmp_path / "acted.npz"]
    subprocess.run([sys.executable, "-c", OTHER_PROCESS, *map(str, arguments)], check=True, timeout=300)
    acted = np.load(tmp_path / "acted.npz")
    np.testing.assert_array_equal(acted["mode"], policy.get_action(obs))
    np.testing.assert_array_equal(acted["drawn"], policy.get_action(obs, jax.random.key(7)))
    np.testing.assert_array_equal(acted["value"], policy.value(obs))


def file_of(folder):
    return folder / "policy.safetensors"


def test_saving_again_replaces_the_policy_and_leaves_other_files_alone(tmp_path, policy):
    policy.save(tmp_path)
    (tmp_path / "policy.onnx").write_bytes(b"exported")
    second = policy_for(gymnasium.spaces.Box(-1, 1, (2,)), scaling=SCALING, seed=1)
    second.save(tmp_path)
    assert_same_bits(Policy.load(tmp_path), second)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["policy.onnx", "policy.safetensors"]


def test_a_file_of_any_name_will_do(tmp_path, policy):
    policy.save(tmp_path / "deep" / "mine.safetensors")
    assert_same_bits(Policy.load(tmp_path / "deep" / "mine.safetensors"), policy)


def test_saving_the_same_policy_gives_the_same_bytes(tmp_path, policy):
    policy.save(tmp_path / "first")
    policy.save(tmp_path / "second")
    assert file_of(tmp_path / "first").read_bytes() == file_of(tmp_path / "second").read_bytes()


def test_a_folder_without_a_policy_is_refused_by_name(tmp_path):
    with pytest.raises(CheckpointError, match=f"There is no policy at {file_of(tmp_path / 'none')}"):
        Policy.load(tmp_path / "none")


@pytest.mark.parametrize("kept", [0.3, 0.5, -1])
def test_a_cut_file_is_refused_by_name(tmp_path, policy, kept):
    policy.save(tmp_path)
    content = file_of(tmp_path).read_bytes()
    file_of(tmp_path).write_bytes(content[: int(kept * len(content)) if isinstance(kept, float) else kept])
    with pytest.raises(CheckpointError, match=r"policy\.safetensors is damaged: its content differs"):
        Policy.load(tmp_path)


@pytest.mark.parametrize("kept", [0, 1, 8, 60])
def test_a_file_cut_before_its_checksum_is_refused_by_name(tmp_path, policy, kept):
    policy.save(tmp_path)
    file_of(tmp_path).write_bytes(file_of(tmp_path).read_bytes()[:kept])
    with pytest.raises(CheckpointError, match=r"policy\.safetensors is no policy of dressage: it carries no"):
        Policy.load(tmp_path)


def test_a_changed_byte_anywhere_is_refused_by_name(tmp_path, policy):
    policy.save(tmp_path)
    content = file_of(tmp_path).read_bytes()
    places = np.random.default_rng(0).integers(0, len(content), 300)
    for place in [0, 7, 8, 20, len(content) - 1, *places]:
        changed = bytearray(content)
        changed[place] ^= 1
        file_of(tmp_path).write_bytes(changed)
        with pytest.raises(CheckpointError, match=r"policy\.safetensors is (damaged|no policy)"):
            Policy.load(tmp_path)


class CreatesAFolder:
    """Unpickled, it creates a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_pickle_is_refused_and_not_executed(tmp_path, policy):
    payload = pickle.dumps(CreatesAFolder(str(tmp_path / "executed")))
    file_of(tmp_path).write_bytes(payload)
    with pytest.raises(CheckpointError, match="is no policy of dressage"):
        Policy.load(tmp_path)
    assert not (tmp_path / "executed").exists()
    pickle.loads(payload)
    assert (tmp_path / "executed").exists()  # the payload would have worked


def test_another_format_is_refused_with_both_numbers(tmp_path, policy, monkeypatch):
    monkeypatch.setattr(policy_files, "FORMAT", 2)
    policy.save(tmp_path)
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="has format 2; this version of dressage reads 1"):
        Policy.load(tmp_path)


def test_a_policy_of_another_kind_is_refused(tmp_path):
    write_policy_file(file_of(tmp_path), {"loader": "adapter", "policy": {}}, {"x": np.zeros(1)})
    with pytest.raises(CheckpointError, match="holds no policy of PPO"):
        Policy.load(tmp_path)


def test_a_container_of_others_is_refused(tmp_path):
    save_file({"x": np.zeros(1)}, file_of(tmp_path), {"note": '"sha256":"' + "0" * 64 + '"'})
    with pytest.raises(CheckpointError, match="is damaged"):
        Policy.load(tmp_path)


def test_killed_at_any_moment_of_saving_the_old_policy_or_the_new_one_is_there(tmp_path, policy, monkeypatch):
    second = policy_for(gymnasium.spaces.Box(-1, 1, (2,)), scaling=SCALING, seed=1)
    outcomes = set()
    for survived in range(5):
        folder = tmp_path / str(survived)
        policy.save(folder)
        left = iter(range(survived))
        with monkeypatch.context() as patch:
            die_after(patch, left)
            finished = saves(second, folder)
        loaded = Policy.load(folder)
        is_new = np.array_equal(
            loaded.model["actor"]["Dense_0"]["kernel"], second.model["actor"]["Dense_0"]["kernel"]
        )
        assert_same_bits(loaded, second if is_new else policy)
        outcomes.add((finished, is_new))
        second.save(folder)
        assert_same_bits(Policy.load(folder), second)
    assert outcomes == {(False, False), (True, True)}


class Killed(BaseException):
    """Stands for the end of the process."""


def die_after(patch, left):
    """Let every call that touches the disk die once `left` is used up."""
    for owner, name in ((os, "replace"), (os, "fsync"), (policy_files.Path, "mkdir")):
        patch.setattr(owner, name, _dying(getattr(owner, name), left))


def _dying(function, left):
    def call(*arguments, **options):
        if next(left, None) is None:
            raise Killed
        return function(*arguments, **options)

    return call


def saves(policy, folder):
    try:
        policy.save(folder)
    except Killed:
        return False
    return True
