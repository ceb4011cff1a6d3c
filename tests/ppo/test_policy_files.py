"""Policies on disk: equal bits after a round trip, refusal of damage, and no moment without a policy."""

import json
import os
import subprocess
import sys

import gymnasium
import jax
import numpy as np
import pytest

from dressage.errors import CheckpointError
from dressage.ppo import Policy, policy_files
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


def weights_of(folder):
    (path,) = folder.glob("weights-*.safetensors")
    return path


def test_saving_again_replaces_the_policy_and_leaves_other_files_alone(tmp_path, policy):
    policy.save(tmp_path)
    (tmp_path / "policy.onnx").write_bytes(b"exported")
    second = policy_for(gymnasium.spaces.Box(-1, 1, (2,)), scaling=SCALING, seed=1)
    second.save(tmp_path)
    assert_same_bits(Policy.load(tmp_path), second)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["policy.json", "policy.onnx", weights_of(tmp_path).name]


def test_a_folder_without_a_policy_is_refused_by_name(tmp_path):
    with pytest.raises(CheckpointError, match=f"no policy in {tmp_path / 'none'}: policy.json is missing"):
        Policy.load(tmp_path / "none")


@pytest.mark.parametrize("kept", [0, 1, 0.5, -1])
def test_cut_weights_are_refused_by_name(tmp_path, policy, kept):
    policy.save(tmp_path)
    path = weights_of(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content)) if isinstance(kept, float) else kept])
    with pytest.raises(CheckpointError, match=f"is damaged: {path.name} differs from its checksum"):
        Policy.load(tmp_path)


def test_altered_weights_are_refused_by_name(tmp_path, policy):
    policy.save(tmp_path)
    path = weights_of(tmp_path)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=f"is damaged: {path.name} differs from its checksum"):
        Policy.load(tmp_path)


def test_missing_weights_are_refused_by_name(tmp_path, policy):
    policy.save(tmp_path)
    path = weights_of(tmp_path)
    path.unlink()
    with pytest.raises(CheckpointError, match=f"is incomplete: {path.name} is missing"):
        Policy.load(tmp_path)


@pytest.mark.parametrize("kept", [0, 1, 100, -3])
def test_a_cut_description_is_refused_by_name(tmp_path, policy, kept):
    policy.save(tmp_path)
    path = tmp_path / "policy.json"
    path.write_text(path.read_text()[:kept])
    with pytest.raises(CheckpointError, match="is damaged: policy.json is no JSON"):
        Policy.load(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [("hidden_activation", "relu"), ("squash", False), ("weights_sha256", "0" * 64), ("spec", {})],
)
def test_an_altered_description_is_refused_by_name(tmp_path, policy, name, value):
    policy.save(tmp_path)
    path = tmp_path / "policy.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    with pytest.raises(CheckpointError, match=r"is damaged: policy\.json differs from its own checksum"):
        Policy.load(tmp_path)


@pytest.mark.parametrize("content", ["[1]", "{}", '{"format": 2}', "null"])
def test_another_format_is_refused_with_both_numbers(tmp_path, content):
    (tmp_path / "policy.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"has format .*; this version of dressage reads 1\."):
        Policy.load(tmp_path)


def test_killed_at_any_moment_of_saving_the_old_policy_or_the_new_one_is_there(tmp_path, policy, monkeypatch):
    second = policy_for(gymnasium.spaces.Box(-1, 1, (2,)), scaling=SCALING, seed=1)
    outcomes = set()
    for survived in range(20):
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
    assert outcomes == {(False, False), (False, True), (True, True)}


class Killed(BaseException):
    """Stands for the end of the process."""


def die_after(patch, left):
    """Let every call that touches the disk die once `left` is used up."""
    for owner, name in (
        (os, "replace"),
        (os, "fsync"),
        (policy_files.Path, "unlink"),
        (policy_files.Path, "mkdir"),
    ):
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
