"""Policies that training exports, and the verbs that export, verify, inspect and go on training them."""

import json
import shutil

import jax
import numpy as np
import pytest

from dressage.export import NumpyPolicy, OnnxPolicy, describe_file
from dressage.ppo import Policy
from tests.cli.short_training import SHORT
from tests.ppo.small_tasks import assert_same_bits

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def words_of(shown):
    return " ".join(shown.output.split())


@pytest.fixture(scope="module")
def tuned(dressage, finished, tmp_path_factory):
    """A run that starts from the finished one's policy, in a heavier pendulum, and makes one update."""
    path = tmp_path_factory.mktemp("runs") / "tuned"
    start = finished[0] / "policy" / "policy.safetensors"
    short = [word if word != "4096" else "128" for word in SHORT]
    shown = dressage("train", "pendulum", *short, "--init-from", start, "--no-film", "--run", path)
    assert shown.exit_code == 0, shown.output
    return path


def test_training_ends_with_both_files_checked_and_their_cards_filled(finished):
    path, output = finished
    assert "export  safetensors and ONNX, both checked against the policy" in output
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    last = [row for row in rows if row["kind"] == "eval"][-1]
    for name in ("policy.onnx", "policy.safetensors"):
        card = describe_file(path / "policy" / name)["card"]
        assert (card["task"], card["algorithm"], card["seed"]) == ("pendulum", "ppo", 0)
        assert (card["training_steps"], card["control_period_s"]) == (4096, 0.05)
        assert card["returns"]["estimate"] == pytest.approx(last["eval/return_mean"])
        assert card["returns"]["deviation"] == pytest.approx(last["eval/return_std"])
        assert card["returns"]["low"] <= card["returns"]["estimate"] <= card["returns"]["high"]
        assert [signal["unit"] for signal in card["observation"]] == ["", "", "rad/s"]
        assert card["action"] == [{"name": "torque", "unit": "N m", "low": -2.0, "high": 2.0}]


def test_the_files_act_as_the_policy_does(finished):
    folder = finished[0] / "policy"
    observations = np.random.default_rng(0).normal(size=(32, 3)).astype(np.float32)
    live = Policy.load(folder).get_action(observations)
    for runner in (OnnxPolicy(folder / "policy.onnx"), NumpyPolicy(folder / "policy.safetensors")):
        np.testing.assert_allclose(runner.act(observations), live, rtol=1e-5, atol=1e-5)


def test_every_seed_gets_its_own_files(finished_seeds):
    path, _ = finished_seeds
    cards = {
        seed: describe_file(path / "policy" / f"seed-{seed}" / "policy.onnx")["card"] for seed in (5, 6, 7)
    }
    assert [card["seed"] for card in cards.values()] == [5, 6, 7]
    assert len({card["returns"]["estimate"] for card in cards.values()}) == 3


def test_verify_passes_a_file_and_fails_a_changed_one(dressage, finished, tmp_path):
    path = finished[0] / "policy" / "policy.onnx"
    shown = dressage("verify", path, finished[0] / "policy" / "policy.safetensors")
    assert shown.exit_code == 0
    assert words_of(shown).count("is what it says it is") == 2
    assert "stored test passed 32 observations and actions" in words_of(shown)
    changed = bytearray(path.read_bytes())
    changed[1000] ^= 1
    (tmp_path / "policy.onnx").write_bytes(changed)
    shown = dressage("verify", tmp_path / "policy.onnx")
    assert shown.exit_code == 1
    assert "is damaged: its content differs from its checksum" in shown.stderr
    shown = dressage("verify", tmp_path / "none.onnx")
    assert (shown.exit_code, "There is no policy at" in shown.stderr) == (1, True)


def test_inspect_shows_what_goes_in_what_comes_out_and_what_was_achieved(dressage, finished):
    for name in ("policy.onnx", "policy.safetensors"):
        shown = words_of(dressage("inspect", finished[0] / "policy" / name))
        assert f"{name}ppoonpendulum" in shown.replace(" ", "")  # a long path is broken anywhere
        assert "2 speed rad/s -8 to 8" in shown
        assert "0 torque N m -2 to 2" in shown
        assert "4,096 environment steps, seed 0" in shown
        assert "(mean of 3 episodes and its 95 %" in shown
        assert "cost not measured" in shown


def test_inspect_prints_json_for_programs(dressage, finished):
    shown = dressage("inspect", finished[0] / "policy" / "policy.onnx", "--json")
    assert json.loads(shown.output)["card"]["task"] == "pendulum"


def test_export_writes_another_format_and_another_seed(dressage, finished_seeds, tmp_path):
    path = tmp_path / "mine.stablehlo"
    shown = dressage("export", finished_seeds[0], "--output", path, "--trained-seed", "6")
    assert shown.exit_code == 0
    assert "bytes, verified against the policy" in words_of(shown)
    assert describe_file(path)["card"]["seed"] == 6
    assert dressage("verify", path).exit_code == 0


def test_the_critic_stays_at_home_unless_it_is_asked_for_or_the_file_is_the_runs_own(
    dressage, finished_seeds, tmp_path
):
    for words, has in (((), False), (("--critic",), True)):
        path = tmp_path / f"{len(words)}.safetensors"
        assert dressage("export", finished_seeds[0], "--output", path, *words).exit_code == 0
        assert ("critic" in Policy.load(path).model) is has
    assert dressage("export", finished_seeds[0], "--format", "safetensors").exit_code == 0
    assert "critic" in Policy.load(finished_seeds[0] / "policy" / "seed-5").model


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--output", "x.onx"), "There is no format 'onx' (the ending of x.onx). Did you mean 'onnx'?"),
        (("--format", "pt"), "There is no format 'pt' (format)."),
        (("--trained-seed", "9"), "has no seed 9. It has: 0."),
    ],
)
def test_a_wrong_export_is_refused_by_name(dressage, finished, words, message):
    shown = dressage("export", finished[0], *words)
    assert (shown.exit_code, message in " ".join(shown.stderr.split())) == (2, True)


def test_training_goes_on_from_a_shipped_policy_with_its_statistics(finished, tuned):
    before, after = Policy.load(finished[0] / "policy"), Policy.load(tuned / "policy")
    record = json.loads((tuned / "config.json").read_text())
    assert record["initial_policy"]["statistics"] == "kept"
    assert_same_bits(Policy.load(tuned / "initial_policy.safetensors"), before)
    # One update of 128 samples more than the 4,096 of the first run.
    assert float(after.obs_scaling.count) == float(before.obs_scaling.count) + 128
    distances = jax.tree.map(lambda one, other: np.abs(one - other).max(), before.model, after.model)
    assert 0 < max(jax.tree.leaves(distances)) < 0.05


@pytest.mark.slow
def test_statistics_may_begin_anew_and_seeds_start_alike(dressage, finished, tmp_path):
    start = tmp_path / "start.safetensors"
    shutil.copy(finished[0] / "policy" / "policy.safetensors", start)
    short = [word if word != "4096" else "128" for word in SHORT]
    words = ("--reset-statistics", "--seeds", "2", "--no-film", "--run", tmp_path / "run")
    shown = dressage("train", "pendulum", *short, "--init-from", start, *words)
    assert shown.exit_code == 0, shown.output
    policies = [Policy.load(tmp_path / "run" / "policy" / f"seed-{seed}") for seed in (0, 1)]
    assert [float(policy.obs_scaling.count) for policy in policies] == [128, 128]
    one, other = (np.asarray(policy.model["actor"]["Dense_0"]["kernel"]) for policy in policies)
    assert 0 < np.abs(one - other).max() < 0.1


def test_a_run_killed_before_its_first_checkpoint_still_starts_from_the_policy(dressage, tuned, tmp_path):
    path = tmp_path / "killed"
    path.mkdir()
    for name in ("config.json", "initial_policy.safetensors"):
        shutil.copy(tuned / name, path)
    shown = dressage("train", "--run", path, "--resume", "--no-film")
    assert shown.exit_code == 0, shown.output
    assert_same_bits(Policy.load(path / "policy"), Policy.load(tuned / "policy"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("cartpole",),
            "The policy was trained for other spaces: obs_dim is 3 there and 4 here; action_kind is",
        ),
        (
            ("pendulum", "--set", "HIDDEN_ACTIVATION=relu"),
            "trained with other options: HIDDEN_ACTIVATION is tanh there and relu here",
        ),
    ],
)
def test_a_policy_for_other_spaces_or_networks_is_refused_by_name(
    dressage, finished, tmp_path, words, message
):
    start = finished[0] / "policy" / "policy.safetensors"
    shown = dressage("train", *words, "--init-from", start, "--run", tmp_path / "run")
    assert (shown.exit_code, message in " ".join(shown.stderr.split())) == (2, True), shown.stderr


def test_options_beside_what_they_speak_of_are_refused(dressage, finished, tmp_path):
    shown = dressage("train", "pendulum", "--reset-statistics")
    assert (shown.exit_code, "name the policy with --init-from FILE" in shown.stderr) == (2, True)
    shown = dressage("train", "--run", finished[0], "--resume", "--init-from", "x.safetensors")
    assert (shown.exit_code, "leave out --init-from" in shown.stderr) == (2, True)
    shown = dressage("train", "pendulum", "--init-from", tmp_path / "none.safetensors")
    assert (shown.exit_code, "--init-from: there is no policy at" in shown.stderr) == (2, True)
    assert not (tmp_path / "run").exists()
