"""Policies that training exports, and the verbs that export, verify, inspect and go on training them."""

import json
import shutil

import jax
import numpy as np
import pytest

from dressage.export import NumpyPolicy, OnnxPolicy, describe_file
from dressage.ppo import Policy
from tests.cli.short_training import MANY_AGENTS, SHORT, set_words
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
    assert "has not proved to be what it says it is" in words_of(shown)
    assert "is damaged: its content differs from its checksum" in words_of(shown)
    shown = dressage("verify", tmp_path / "none.onnx")
    assert (shown.exit_code, "There is no policy at" in shown.stderr) == (2, True)


@pytest.fixture(scope="module")
def team(dressage, tmp_path_factory):
    """A short run of two agents."""
    path = tmp_path_factory.mktemp("runs") / "team"
    words = ("coupled_budget", *set_words(MANY_AGENTS), "--no-film", "--quiet", "--run", path)
    shown = dressage("train", *words)
    assert shown.exit_code == 0, shown.output
    return path


def test_verify_names_every_file_of_runs_and_teams(dressage, finished, team):
    shown = words_of(dressage("verify", finished[0], team)).replace(" ", "")
    files = [finished[0] / "policy" / f"policy.{name}" for name in ("onnx", "safetensors")]
    for name in ("onnx", "safetensors"):
        folder = team / "policy" / name
        files += [folder / "policies.json", folder / f"agent_0.{name}", folder / f"agent_1.{name}"]
    assert all(f"{file}iswhatitsaysitis" in shown for file in files)
    assert shown.count("iswhatitsaysitis") == len(files)


def test_one_bad_file_of_a_team_fails_the_whole_and_is_named(dressage, team, tmp_path):
    shutil.copytree(team / "policy", tmp_path / "policy")
    file = tmp_path / "policy" / "onnx" / "agent_1.onnx"
    file.write_bytes(file.read_bytes()[:-1])
    for place in (tmp_path / "policy", file.with_name("policies.json")):
        shown = dressage("verify", place)
        words = words_of(shown).replace(" ", "")
        assert shown.exit_code == 1
        assert f"{file}hasnotprovedtobewhatitsaysitis" in words
        assert "agent_1.onnxdiffersfromitschecksuminpolicies.json" in words
        assert f"{file.with_name('agent_0.onnx')}iswhatitsaysitis" in words
    shown = dressage("inspect", file.parent)
    assert shown.exit_code == 1
    assert "agent agent_0" in words_of(shown)
    assert str(file) in shown.stderr


def test_inspect_shows_each_policy_of_a_run_once_with_all_its_files(dressage, finished, team):
    shown = words_of(dressage("inspect", finished[0])).replace(" ", "")
    assert shown.count("goesin") == 1
    assert f"thesamein{finished[0]}/policy/policy.safetensors" in shown
    shown = words_of(dressage("inspect", team))
    assert shown.count("goes in") == 2
    assert ("agent agent_0" in shown, "agent agent_1" in shown) == (True, True)
    listed = json.loads(dressage("inspect", team / "policy" / "onnx" / "policies.json", "--json").output)
    assert [(row["file"][-12:], row["card"]["agent"]) for row in listed] == [
        ("agent_0.onnx", "agent_0"),
        ("agent_1.onnx", "agent_1"),
    ]


def test_inspect_says_how_much_of_a_file_is_its_critic(dressage, finished, tmp_path):
    shown = words_of(dressage("inspect", finished[0] / "policy" / "policy.safetensors"))
    # Two layers of 8 behind 3 numbers, and one value: (3 + 1) 8 + (8 + 1) 8 + 9 numbers of 4 bytes.
    assert "of which 452 are its critic: training goes on from it, acting needs none" in shown
    path = tmp_path / "small.safetensors"
    assert dressage("export", finished[0], "--output", path).exit_code == 0
    assert "critic" not in words_of(dressage("inspect", path))


@pytest.mark.parametrize("verb", ["inspect", "verify"])
def test_what_is_no_policy_is_refused_by_name(dressage, finished, tmp_path, verb):
    shown = dressage(verb, finished[0] / "report.html")
    assert (shown.exit_code, "report.html is neither a policy nor" in words_of(shown)) == (2, True)
    shown = dressage(verb, tmp_path)
    assert (shown.exit_code, "There is no exported policy in" in shown.stderr) == (2, True)
    shutil.copy(finished[0] / "config.json", tmp_path)
    shown = dressage(verb, tmp_path)
    assert (shown.exit_code, "has no policy yet, since its training" in shown.stderr) == (2, True)


def test_several_agents_are_exported_into_a_folder_whose_manifest_is_named(dressage, team, tmp_path):
    shown = dressage("export", team, "--output", tmp_path / "robots", "--format", "safetensors")
    assert shown.exit_code == 0
    assert "policies.json lists them, with their checksums" in words_of(shown)
    assert dressage("verify", tmp_path / "robots" / "safetensors" / "policies.json").exit_code == 0
    shown = dressage("export", team, "--output", tmp_path / "robots.onnx")
    message = f"names the folder for their files, not a file: --output {tmp_path / 'robots'} --format onnx"
    assert (shown.exit_code, message in words_of(shown)) == (2, True)


def test_inspect_shows_what_goes_in_what_comes_out_and_what_was_achieved(dressage, finished):
    for name in ("policy.onnx", "policy.safetensors"):
        shown = words_of(dressage("inspect", finished[0] / "policy" / name))
        assert f"{name}ppoonpendulum" in shown.replace(" ", "")  # a long path is broken anywhere
        assert "2 speed rad/s -8 to 8" in shown
        assert "0 torque N m -2 to 2" in shown
        assert "4,096 environment steps, seed 0" in shown
        assert "(mean of 3 episodes with the most likely actions and its 95 %" in shown
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
        (("--output", "x"), "x has no ending that tells the format. Known: .onnx, .safetensors, .stablehlo."),
        (("--output", "x", "--format", "onnx"), "format onnx ends in .onnx; x does not. Name it x.onnx"),
        (("--critic",), "--critic: only safetensors files hold a critic. Give --format safetensors"),
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
