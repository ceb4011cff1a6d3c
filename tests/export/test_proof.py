"""A file proves itself before it is put in place, refuses damage by name, and can prove itself again."""

import dataclasses
import pickle
import re

import jax
import numpy as np
import pytest
from flax import linen as nn

from dressage.errors import CheckpointError, ConfigError
from dressage.export import (
    FORMATS,
    Card,
    NumpyPolicy,
    OnnxPolicy,
    StableHloPolicy,
    export_policies,
    export_policy,
    load_policies,
    load_policy,
    onnx_format,
    verify_file,
)
from dressage.learning import policy_files
from tests.export.shipped import AGENT_KINDS, PPO_KINDS, policy_of, shipped
from tests.ppo.small_tasks import assert_same_bits
from tests.ppo.test_policy_files import CreatesAFolder, Killed, die_after

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

RUNNERS = {"onnx": OnnxPolicy, "safetensors": NumpyPolicy, "stablehlo": StableHloPolicy}
REFUSALS = (CheckpointError, ValueError)


class Altered:
    """A policy whose graph has one weight changed, as by a fault of an exporter."""

    def __init__(self, policy, name, change):
        self.policy, self.name, self.change = policy, name, change

    def deployment(self):
        whole = self.policy.deployment()
        weights = whole.graph.weights | {self.name: self.change(whole.graph.weights[self.name])}
        return dataclasses.replace(whole, graph=dataclasses.replace(whole.graph, weights=weights))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    ("kind", "weight"),
    [
        ("squashed", "observation/mean"),
        ("squashed", "actor/Dense_1/kernel"),
        ("squashed", "action/half_width"),
        ("categorical", "actor/Dense_2/kernel"),
    ],
)
def test_a_file_that_acts_differently_is_not_written(tmp_path, name, kind, weight):
    policy = Altered(policy_of(kind), weight, lambda array: array * 1.001)
    with pytest.raises(CheckpointError, match="was not written: the file would not act as the policy does"):
        export_policy(policy, tmp_path / f"policy.{name}")
    assert list(tmp_path.iterdir()) == []


def test_a_fault_of_one_format_is_found(tmp_path, monkeypatch):
    real = onnx_format._EMITTERS["dense"]

    def forget_the_activation(model, op):
        real(model, dataclasses.replace(op, settings={}))

    monkeypatch.setitem(onnx_format._EMITTERS, "dense", forget_the_activation)
    with pytest.raises(CheckpointError, match=r"action differs in \d+ of 8192 numbers, most in row \d+"):
        export_policy(policy_of("squashed"), tmp_path / "policy.onnx")
    assert list(tmp_path.iterdir()) == []


def test_an_output_that_is_not_finite_is_found(tmp_path):
    def broken(array):
        return np.where(np.arange(array.size) == 0, np.nan, array)

    with pytest.raises(CheckpointError, match="action is not finite in 4096 places"):
        export_policy(Altered(policy_of("squashed"), "action/middle", broken), tmp_path / "policy.onnx")


def test_a_file_that_was_there_before_stays_when_an_export_fails(tmp_path):
    path = export_policy(policy_of("squashed"), tmp_path / "policy.safetensors")
    before = path.read_bytes()
    with pytest.raises(CheckpointError, match="was not written"):
        export_policy(Altered(policy_of("squashed"), "action/middle", lambda x: x + 0.1), path)
    assert path.read_bytes() == before


def test_exporting_changes_nothing_of_the_policy(tmp_path):
    policy = policy_of("squashed")
    before = jax.tree.map(np.array, policy)
    for name in FORMATS:
        export_policy(policy, tmp_path / f"policy.{name}")
    assert_same_bits(policy, before)


def survives(policy, path):
    try:
        export_policy(policy, path)
    except Killed:
        return False
    return True


def test_killed_at_any_moment_there_is_the_whole_file_or_none(tmp_path, monkeypatch):
    finished = []
    for survived in range(5):
        path = tmp_path / str(survived) / "policy.safetensors"
        with monkeypatch.context() as patch:
            die_after(patch, iter(range(survived)))
            finished.append(survives(policy_of("unbounded"), path))
        assert path.exists() == finished[-1]
        if finished[-1]:
            NumpyPolicy(path)
    assert finished == sorted(finished) and set(finished) == {False, True}


@pytest.mark.parametrize("name", FORMATS)
def test_a_changed_byte_anywhere_is_refused_by_name(tmp_path, name):
    content = shipped("squashed").files[name].read_bytes()
    path = tmp_path / f"changed.{name}"
    places = np.random.default_rng(0).integers(0, len(content), 100)
    for place in [0, 8, len(content) - 1, *places]:
        changed = bytearray(content)
        changed[place] ^= 1
        path.write_bytes(changed)
        with pytest.raises(REFUSALS, match=rf"{re.escape(str(path))} is (damaged|no policy)"):
            RUNNERS[name](path)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("kept", [0, 100, 0.5, -1])
def test_a_cut_file_is_refused_by_name(tmp_path, name, kept):
    content = shipped("squashed").files[name].read_bytes()
    path = tmp_path / f"cut.{name}"
    path.write_bytes(content[: int(kept * len(content)) if isinstance(kept, float) else kept])
    with pytest.raises(REFUSALS, match=rf"{re.escape(str(path))} is (damaged|no policy)"):
        RUNNERS[name](path)


@pytest.mark.parametrize("name", FORMATS)
def test_a_pickle_is_refused_and_not_executed(tmp_path, name):
    path = tmp_path / f"policy.{name}"
    path.write_bytes(pickle.dumps(CreatesAFolder(str(tmp_path / "executed"))))
    with pytest.raises(REFUSALS, match="is no policy of dressage"):
        RUNNERS[name](path)
    with pytest.raises(CheckpointError):
        load_policy(tmp_path / "policy.safetensors")
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("shape", [(2,), (4,), (), (5, 2)])
def test_an_observation_of_another_space_is_refused_with_both_shapes(name, shape):
    runner = shipped("squashed").runners[name]
    with pytest.raises(ValueError, match=r"takes 'observation' of shape \(3,\), or a batch of it, got \("):
        runner.act(np.zeros(shape))


def test_a_missing_part_of_an_observation_is_named():
    runner = shipped("tree of observations").runners["safetensors"]
    with pytest.raises(ValueError, match=r"has no 'observation\.gauges\.0'; it has observation\.cup"):
        runner.act({"cup": 2})


@pytest.mark.parametrize("kind", PPO_KINDS)
def test_a_safetensors_file_loads_back_bit_for_bit(kind, tmp_path):
    made = shipped(kind)
    path = export_policy(made.policy, tmp_path / "policy.safetensors", critic=True)
    assert_same_bits(load_policy(path), made.policy)


def test_what_cannot_be_loaded_back_is_refused_with_the_class_that_runs_it():
    files = shipped("squashed").files
    with pytest.raises(CheckpointError, match="run it with OnnxPolicy"):
        load_policy(files["onnx"])
    with pytest.raises(CheckpointError, match="run it with StableHloPolicy"):
        load_policy(files["stablehlo"])


def test_a_policy_of_an_unknown_loader_is_refused(tmp_path):
    description, tensors = policy_files.read_policy_file(shipped("squashed").files["safetensors"])
    path = tmp_path / "policy.safetensors"
    policy_files.write_policy_file(path, description | {"loader": "later"}, tensors)
    with pytest.raises(CheckpointError, match=r"cannot load back \(loader 'later'\); NumpyPolicy runs it"):
        load_policy(path)


@pytest.mark.parametrize("kind", AGENT_KINDS)
def test_an_agents_policy_loads_back_bit_for_bit(kind, tmp_path):
    policy = policy_of(kind)
    loaded = load_policy(export_policy(policy, tmp_path / "policy.safetensors", critic=True))
    assert type(loaded) is type(policy)
    assert (loaded.agent_id, loaded.network) == ("left", policy.network)
    assert (loaded.observation_space, loaded.action_space) == (policy.observation_space, policy.action_space)
    assert_same_bits(loaded.params, policy.params)


def test_an_adapter_of_a_network_that_nobody_knows_is_refused_with_the_reason(tmp_path):
    adapter = dataclasses.replace(policy_of("agent"), network=None)
    with pytest.raises(ConfigError, match="its network and spaces are not known, only how to call it"):
        export_policy(adapter, tmp_path / "policy.onnx")
    other = dataclasses.replace(policy_of("agent"), network=nn.Dense(4))
    with pytest.raises(ConfigError, match="what its network computes is not known"):
        export_policy(other, tmp_path / "policy.onnx")


def test_many_agents_get_one_file_each_and_a_manifest(tmp_path):
    policies = {"robot 1": policy_of("agent"), "robot/2": policy_of("masked agent")}
    paths = export_policies(policies, tmp_path, cards={"robot/2": Card(note="the second")})
    assert {agent: path.name for agent, path in paths.items()} == {
        "robot 1": "robot-1.onnx",
        "robot/2": "robot-2.onnx",
    }
    runners = load_policies(tmp_path)
    assert runners["robot/2"].description["card"] == {"note": "the second"}
    export_policies(policies, tmp_path, format="safetensors", critic=True)
    assert_same_bits(load_policies(tmp_path)["robot 1"].params, policies["robot 1"].params)


def test_a_manifest_whose_file_is_missing_or_another_is_refused_by_name(tmp_path):
    policies = {"a": policy_of("agent"), "b": policy_of("masked agent")}
    export_policies(policies, tmp_path, format="safetensors")
    (tmp_path / "a.safetensors").write_bytes((tmp_path / "b.safetensors").read_bytes())
    with pytest.raises(CheckpointError, match=r"a\.safetensors differs from its checksum in policies\.json"):
        load_policies(tmp_path)
    (tmp_path / "a.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"are incomplete: a\.safetensors is missing"):
        load_policies(tmp_path)
    (tmp_path / "policies.json").write_text((tmp_path / "policies.json").read_text().replace("b.", "c."))
    with pytest.raises(CheckpointError, match=r"policies\.json is damaged"):
        load_policies(tmp_path)
    with pytest.raises(CheckpointError, match="There are no policies in"):
        load_policies(tmp_path / "none")


@pytest.mark.parametrize(
    ("agents", "message"),
    [
        ((), "the mapping of agents is empty"),
        (("a b", "a-b"), "'a b' and 'a-b' would both be written to a-b"),
    ],
)
def test_agents_that_make_no_file_names_are_refused(tmp_path, agents, message):
    with pytest.raises(ConfigError, match=message):
        export_policies({agent: policy_of("agent") for agent in agents}, tmp_path)


@pytest.mark.parametrize("kind", ["squashed", "agent"])
def test_without_its_critic_a_file_is_smaller_acts_the_same_and_says_how_to_keep_it(tmp_path, kind):
    policy, path = policy_of(kind), shipped(kind).files["safetensors"]
    whole = export_policy(policy, tmp_path / "policy.safetensors", critic=True)
    assert path.stat().st_size < whole.stat().st_size
    loaded, observations = load_policy(path), np.ones((2, 3), np.float32)
    act = "get_action" if kind == "squashed" else "act"
    np.testing.assert_array_equal(getattr(loaded, act)(observations), getattr(policy, act)(observations))
    with pytest.raises(ValueError, match="has no critic: it was exported without"):
        loaded.value(observations)
    np.testing.assert_array_equal(load_policy(whole).value(observations), policy.value(observations))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("kind", ["squashed", "factored", "recurrent agent"])
def test_a_file_verifies_itself_again(name, kind):
    verification = verify_file(shipped(kind).files[name])
    assert verification.passed
    names = [check.name for check in verification.checks]
    assert names[0] == "checksum"
    assert names[2:] == ["stored test", "batches of 1", "batches of 7", "batches of 256", "extremes"]


def test_a_sealed_file_whose_weights_were_exchanged_fails_its_stored_test(tmp_path):
    path = shipped("squashed").files["safetensors"]
    description, tensors = policy_files.read_policy_file(path)
    tensors["actor/Dense_0/kernel"] = tensors["actor/Dense_0/kernel"] + np.float32(0.1)
    policy_files.write_policy_file(tmp_path / "policy.safetensors", description, tensors)
    verification = verify_file(tmp_path / "policy.safetensors")
    assert not verification.passed
    failed = {check.name: check.note for check in verification.checks if check.passed is False}
    assert "weights" in failed
    assert "action differs in" in failed["stored test"]


def test_a_saved_policy_that_was_not_exported_carries_no_test(tmp_path):
    policy_of("squashed").save(tmp_path)
    with pytest.raises(CheckpointError, match="carries no test: it was saved, not exported"):
        verify_file(tmp_path / "policy.safetensors")


def test_what_is_no_policy_is_refused_with_the_reason(tmp_path):
    with pytest.raises(ConfigError, match="str cannot be exported: it does not say what it computes"):
        export_policy("policy", tmp_path / "policy.onnx")


@pytest.mark.parametrize(
    ("path", "given", "message"),
    [
        ("policy.onx", None, r"no format 'onx' \(the ending of policy.onx\). Did you mean 'onnx'\?"),
        ("policy", "torch", r"no format 'torch' \(format\). Known: onnx, safetensors, stablehlo"),
        ("policy.onnx", "safetensors", "A file of format safetensors ends in .safetensors"),
    ],
)
def test_a_wrong_format_is_refused_by_name(tmp_path, path, given, message):
    with pytest.raises(ConfigError, match=message):
        export_policy(policy_of("squashed"), tmp_path / path, format=given)


def test_infinite_bounds_cannot_be_squashed_into(tmp_path):
    policy = policy_of("half bounded")
    squashing = policy.replace(act_scaling=policy.act_scaling.replace(squash=True))
    with pytest.raises(ConfigError, match="cannot be squashed into the bounds"):
        export_policy(squashing, tmp_path / "policy.onnx")


def test_a_policy_put_together_without_spaces_can_be_exported(tmp_path):
    policy = policy_of("squashed").replace(spec=None, layout=None)
    path = export_policy(policy, tmp_path / "policy.safetensors")
    observation = np.float32([60, -2, 1])
    np.testing.assert_allclose(NumpyPolicy(path).act(observation), policy.get_action(observation), rtol=1e-5)
