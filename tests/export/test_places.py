"""Everything that was exported to a place is found and checked: files, manifests, folders."""

import re

import pytest

from dressage.errors import CheckpointError, ConfigError
from dressage.export import describe_file, export_policies, export_policy, verify_policies
from dressage.export.places import exported_at
from dressage.learning.policy_files import describe, seal
from dressage.rl.policy_set import PolicySet
from tests.export.shipped import policy_of

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

TEAM = ("left", "right")


@pytest.fixture
def place(tmp_path):
    """What a run of two agents leaves, beside a file of another policy: see `MANIFESTS` and `FILES`."""
    policies = {agent: policy_of("agent") for agent in TEAM}
    PolicySet(policies, "ippo", {}).save(tmp_path / "team")
    for name in ("onnx", "safetensors"):
        export_policies(policies, tmp_path / "team" / name, format=name)
    export_policy(policy_of("squashed"), tmp_path / "alone.safetensors")
    (tmp_path / "notes.txt").write_text("no policy")
    return tmp_path


MANIFESTS = ["team/onnx/policies.json", "team/safetensors/policies.json"]
FILES = [
    "alone.safetensors",
    *(f"team/{name}/{agent}.{name}" for name in ("onnx", "safetensors") for agent in TEAM),
]


def verdicts(place, path):
    return {str(one.path.relative_to(place)): one.passed for one in verify_policies(path)}


def failures(place, path):
    """Return the notes of the checks that failed, by file."""
    return {
        str(one.path.relative_to(place)): [check.note for check in one.checks if check.passed is False]
        for one in verify_policies(path)
        if not one.passed
    }


def test_a_folder_is_checked_with_all_that_was_exported_into_it(place):
    assert verdicts(place, place) == dict.fromkeys([*MANIFESTS, *FILES], True)


def test_a_manifest_is_checked_with_the_files_that_it_lists(place):
    manifest = place / "team" / "onnx" / "policies.json"
    export_policy(policy_of("squashed"), manifest.with_name("unlisted.onnx"))
    listed = [f"team/onnx/{agent}.onnx" for agent in TEAM]
    assert verdicts(place, str(manifest)) == dict.fromkeys(["team/onnx/policies.json", *listed], True)
    assert "team/onnx/unlisted.onnx" in verdicts(place, manifest.parent)


def test_a_changed_byte_fails_the_file_and_the_line_of_its_manifest(place):
    path = place / "team" / "onnx" / "right.onnx"
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)
    assert failures(place, place) == {
        "team/onnx/policies.json": ["right.onnx differs from its checksum in policies.json"],
        "team/onnx/right.onnx": [f"The policy {path} is damaged: its content differs from its checksum."],
    }


def test_an_intact_file_of_another_policy_fails_its_manifest_alone(place):
    right = place / "team" / "safetensors" / "right.safetensors"
    right.write_bytes((place / "alone.safetensors").read_bytes())
    assert failures(place, place) == {
        "team/safetensors/policies.json": ["right.safetensors differs from its checksum in policies.json"]
    }


def test_a_missing_file_and_a_cut_manifest_are_named(place):
    (place / "team" / "onnx" / "left.onnx").unlink()
    cut = place / "team" / "safetensors" / "policies.json"
    cut.write_bytes(cut.read_bytes()[:-1])
    assert failures(place, place) == {
        "team/onnx/policies.json": ["left.onnx is missing"],
        "team/safetensors/policies.json": [
            f"The policy {cut} is damaged: its content differs from its checksum."
        ],
    }
    assert list(failures(place, cut)) == ["team/safetensors/policies.json"]


def test_a_sealed_list_of_something_else_is_no_manifest(place):
    path = place / "policies.json"
    path.write_bytes(seal(describe({"models": {}}).encode()))
    assert failures(place, path) == {"policies.json": [f"{path} lists no policies of agents."]}


def test_a_damaged_file_of_training_is_not_passed_over(place):
    saved = place / "team" / "policies.safetensors"
    assert saved not in exported_at(place).policies
    saved.write_bytes(saved.read_bytes()[:-1])
    assert list(failures(place, place)) == ["team/policies.safetensors"]


def test_a_link_that_leads_back_up_is_not_followed(place):
    (place / "team" / "up").symlink_to(place)
    assert len(exported_at(place).policies) == len(FILES)


@pytest.mark.parametrize(
    ("name", "refusal"),
    [
        ("none.onnx", "There is no policy at "),
        (
            "notes.txt",
            "is neither a policy nor a list of them: policies end in .onnx, .safetensors, ",
        ),
        ("empty", "There is no exported policy in .*Write one with: dressage export RUN"),
    ],
)
def test_where_nothing_was_exported_is_said_with_what_would_be(place, name, refusal):
    (place / "empty").mkdir()
    PolicySet({"left": policy_of("agent")}, "ippo", {}).save(place / "empty")
    with pytest.raises(ConfigError, match=refusal):
        verify_policies(place / name)


def test_what_training_saved_for_itself_and_what_has_a_wrong_ending_are_refused_by_name(place):
    saved = place / "team" / "policies.safetensors"
    refusal = f"{re.escape(str(saved))} holds what training saved for itself and no exported policy"
    with pytest.raises(CheckpointError, match=refusal):
        describe_file(saved)
    ((notes,),) = failures(place, saved).values()
    assert "holds what training saved for itself" in notes
    renamed = place / "renamed.safetensors"
    renamed.write_bytes((place / "team" / "onnx" / "left.onnx").read_bytes())
    with pytest.raises(CheckpointError, match="is no safetensors file, whatever its name says"):
        describe_file(renamed)
    assert list(failures(place, renamed)) == ["renamed.safetensors"]


@pytest.mark.parametrize("name", ["onnx", "stablehlo"])
def test_a_critic_is_refused_where_no_file_of_the_format_holds_one(tmp_path, name):
    with pytest.raises(ConfigError, match=f"Only a safetensors file holds a critic, policy.{name} cannot"):
        export_policy(policy_of("squashed"), tmp_path / f"policy.{name}", critic=True)
    assert list(tmp_path.iterdir()) == []
