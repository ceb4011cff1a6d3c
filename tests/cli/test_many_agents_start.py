"""Training of several agents that starts from shipped policies, through the command line."""

import json
import shutil

import numpy as np
import pytest

from dressage.export import load_policies
from dressage.rl.policy_set import PolicySet
from tests.cli.short_training import MANY_AGENTS, set_words

SHORT = set_words(MANY_AGENTS)
ONE_UPDATE = MANY_AGENTS | {"total_timesteps": 20}
LATER = set_words({name: value for name, value in ONE_UPDATE.items() if name != "network.hidden_sizes"})
"""The same, one update long, with networks as the policies have them."""


@pytest.fixture(scope="module")
def first(dressage, tmp_path_factory):
    """A short run whose agents have statistics and networks of their own."""
    path = tmp_path_factory.mktemp("runs") / "first"
    words = ("--set", "normalize_observations=true", "--no-film", "--quiet", "--run", path)
    shown = dressage("train", "coupled_budget", *SHORT, *words)
    assert shown.exit_code == 0, shown.output
    return path


@pytest.fixture(scope="module")
def second(dressage, first, tmp_path_factory):
    """A run of one update that starts from the first one's policies."""
    path = tmp_path_factory.mktemp("runs") / "second"
    shown = dressage(
        "train", "coupled_budget", *LATER, "--init-from", first, "--no-film", "--quiet", "--run", path
    )
    assert shown.exit_code == 0, shown.output
    return path


def parameters(policies, agent):
    return policies[agent].params["network"]["params"]["actor"]["Dense_0"]["kernel"]


def count(policies, agent):
    return float(policies[agent].params["moments"].count)


def test_training_goes_on_from_the_manifest_in_a_run_with_every_agents_statistics(first, second):
    before, after = (
        load_policies(first / "policy" / "safetensors"),
        PolicySet.load(second / "policy").policies,
    )
    record = json.loads((second / "config.json").read_text())
    assert record["initial_policy"] == {
        "path": str(first / "policy" / "safetensors" / "policies.json"),
        "statistics": "kept",
    }
    assert record["options"]["network.hidden_sizes"] == [4]
    for agent in ("agent_0", "agent_1"):
        assert count(after, agent) == count(before, agent) + 20
        change = np.abs(parameters(after, agent) - parameters(before, agent)).max()
        assert 0 < change < 0.05
    assert np.abs(parameters(after, "agent_0") - parameters(after, "agent_1")).max() > 0.05


def test_statistics_of_all_agents_may_begin_anew(dressage, first, tmp_path):
    manifest = first / "policy" / "safetensors" / "policies.json"
    words = ("--init-from", manifest, "--reset-statistics", "--no-film", "--quiet", "--run", tmp_path / "run")
    shown = dressage("train", "coupled_budget", *LATER, *words)
    assert shown.exit_code == 0, shown.output
    policies = PolicySet.load(tmp_path / "run" / "policy").policies
    assert [count(policies, agent) for agent in policies] == [20, 20]


def test_a_run_needs_nothing_but_its_own_copy_of_the_policies(dressage, second, tmp_path):
    path = tmp_path / "killed"
    path.mkdir()
    shutil.copy(second / "config.json", path)
    shutil.copytree(second / "initial_policies", path / "initial_policies")
    record = json.loads((path / "config.json").read_text())
    record["initial_policy"]["path"] = "/nowhere/policies.json"
    (path / "config.json").write_text(json.dumps(record))
    shown = dressage("train", "--run", path, "--resume", "--no-film")
    assert shown.exit_code == 0, shown.output
    one, other = (PolicySet.load(run / "policy").policies for run in (path, second))
    for agent in one:
        np.testing.assert_array_equal(parameters(one, agent), parameters(other, agent))


def without(first, tmp_path):
    """The first run's manifest with a policy too few."""
    from dressage.export import export_policies

    policies = load_policies(first / "policy" / "safetensors")
    export_policies({"agent_0": policies["agent_0"]}, tmp_path / "one", format="safetensors", critic=True)
    return tmp_path / "one"


def test_what_does_not_fit_is_refused_by_name_and_leaves_nothing_behind(dressage, first, tmp_path):
    run = tmp_path / "run"
    cases = [
        (("coupled_budget", "--init-from", without(first, tmp_path)), "There is no policy for 'agent_1'."),
        (
            ("coupled_budget", "--init-from", first, "--set", "network.activation=relu"),
            "network.activation is tanh there and relu here",
        ),
        (("safe_spread", "--init-from", first), "There is no policy for 'agent_2'."),
        (
            ("pendulum", "--init-from", first),
            "PPO goes on with one policy that PPO trained; got that of agent_0, agent_1 (PolicyAdapter).",
        ),
        (("coupled_budget", "--init-from", tmp_path), "there is no policy in"),
        (("coupled_budget", "--init-from", tmp_path / "none"), "there is no policy at"),
    ]
    for words, message in cases:
        shown = dressage("train", *words, "--run", run)
        assert shown.exit_code == 2, shown.output
        assert message in " ".join(shown.stderr.split())
    assert not run.exists()


def test_programs_and_files_of_other_learners_are_refused_with_the_remedy(
    dressage, first, finished, tmp_path
):
    pytest.importorskip("onnxruntime")
    shown = dressage("train", "coupled_budget", "--init-from", first / "policy" / "onnx")
    assert (shown.exit_code, "dressage export RUN --format safetensors" in shown.stderr) == (2, True)
    saved = first / "policy" / "policies.safetensors"
    shown = dressage("train", "coupled_budget", "--init-from", saved)
    assert (shown.exit_code, "holds the policies of several agents as training" in shown.stderr) == (1, True)
    shown = dressage("train", "coupled_budget", "--init-from", finished[0])
    message = "IPPO goes on with policies that learners of many agents trained"
    assert (shown.exit_code, message in " ".join(shown.stderr.split())) == (2, True)
