"""Training of torch tasks through the command line's seam, and whole runs of it."""

import json
import socket

import numpy as np
import pytest
import yaml

torch = pytest.importorskip("torch")
pytest.importorskip("rsl_rl")

from dressage.cli.rsl_rl import RslRl  # noqa: E402
from dressage.cli.rsl_rl_runs import EngineCheckpoints  # noqa: E402
from dressage.errors import CheckpointError, ConfigError, EnvironmentContractError  # noqa: E402
from dressage.export import NumpyPolicy, OnnxPolicy, describe_file  # noqa: E402
from dressage.policy.torch_envs.catalog import torch_task  # noqa: E402
from tests.policy.rsl_rl_configs import distillation_config, ppo_config, recurrent_config  # noqa: E402

UPDATE = 4 * 8
"""Environment steps of one update of the small runs."""


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def make_run():
    """Make small runs, and end what they started."""
    algorithm, made = RslRl(), []

    def make(seeds=(0,), config=None, task="rsl:pendulum", **options):
        small = {"total_timesteps": 8 * UPDATE, "num_envs": 4, "eval_episodes": 2}
        given = {**small, "rsl_rl": config or ppo_config(), **options}
        made.append(algorithm.make_run(torch_task(task), algorithm.resolve(given), seeds))
        return made[-1]

    yield make
    for run in made:
        algorithm.close_run(run)


def weights_of(run, state, index=0):
    content = run.policy(state, index).checkpoint
    return torch.cat([tensor.flatten().double() for tensor in content["actor_state_dict"].values()])


def trained(run, *chunks):
    state = run.init()
    for updates in chunks:
        state, _ = run.advance(state, updates)
    return state


def test_how_many_updates_a_chunk_has_changes_nothing(make_run):
    one, two = make_run(), make_run()
    whole, parts = trained(one, 4), trained(two, 1, 3)
    assert torch.equal(weights_of(one, whole), weights_of(two, parts))
    assert two.updates_done(parts) == 4 and two.steps_done(parts) == 4 * UPDATE


def test_a_seed_beside_others_learns_as_it_does_alone(make_run):
    alone, beside = make_run(seeds=(3,)), make_run(seeds=(2, 3))
    first, both = trained(alone, 3), trained(beside, 2, 1)
    assert torch.equal(weights_of(alone, first), weights_of(beside, both, 1))
    assert not torch.equal(weights_of(beside, both, 0), weights_of(beside, both, 1))


def test_an_evaluation_changes_nothing(make_run):
    watched, unwatched = make_run(), make_run()
    state, other = trained(watched, 2), trained(unwatched, 2)
    played = watched.evaluate(state)
    assert {name: values.shape for name, values in played.items()} == {
        "eval/returns": (1, 2),
        "eval/lengths": (1, 2),
        "eval/finished": (1, 2),
    }
    assert played["eval/finished"].all() and (played["eval/lengths"] == 200).all()
    np.testing.assert_array_equal(watched.evaluate(state)["eval/returns"], played["eval/returns"])
    state, _ = watched.advance(state, 2)
    other, _ = unwatched.advance(other, 2)
    assert torch.equal(weights_of(watched, state), weights_of(unwatched, other))


@pytest.mark.parametrize("config", [ppo_config(), recurrent_config()], ids=["mlp", "lstm"])
def test_a_resumed_run_equals_the_uninterrupted_one(make_run, tmp_path, config):
    run = make_run(seeds=(0, 1), config=config)
    state = trained(run, 2)
    store = EngineCheckpoints(tmp_path, keep=2)
    store.save(2, state, {"time_s": 1.5})
    state, _ = run.advance(state, 3)
    again = make_run(seeds=(0, 1), config=config)
    resumed, note = store.restore(again.init())
    assert note == {"time_s": 1.5} and again.updates_done(resumed) == 2 and again.exact_resume
    resumed, _ = again.advance(resumed, 3)
    for index in (0, 1):
        assert torch.equal(weights_of(run, state, index), weights_of(again, resumed, index))


def test_the_newest_checkpoints_are_kept_and_later_ones_can_be_discarded(make_run, tmp_path):
    run = make_run()
    state = run.init()
    store = EngineCheckpoints(tmp_path, keep=2)
    for updates in (1, 2, 3):
        state, _ = run.advance(state, 1)
        store.save(updates, state, {})
    assert store.steps() == (2, 3)
    store.discard_after(2)
    assert store.steps() == (2,)
    with pytest.raises(CheckpointError, match="There is no complete checkpoint in"):
        EngineCheckpoints(tmp_path / "none", keep=1).restore(state)


def test_a_checkpoint_without_its_note_is_incomplete(make_run, tmp_path):
    run = make_run()
    store = EngineCheckpoints(tmp_path, keep=1)
    state = trained(run, 1)
    store.save(1, state, {})
    (tmp_path / "1" / "note.json").unlink()
    with pytest.raises(CheckpointError, match="1 is incomplete"):
        store.restore(state)


def test_metrics_name_losses_time_limits_and_episodes(make_run):
    run = make_run()
    _, metrics = run.advance(run.init(), 5)
    assert {
        "train/value_loss",
        "train/entropy",
        "train/learning_rate",
        "runtime/used_steps",
    } <= metrics.keys()
    assert {"train/time_outs_final_observation", "train/time_outs_rsl_rl"} <= metrics.keys()
    assert all(values.shape == (1,) for values in metrics.values())


# What is refused


def test_environments_that_cannot_be_dealt_out_are_refused(make_run):
    with pytest.raises(ConfigError, match=r"'num_envs' \(4\) must divide evenly among 'workers' \(3\)"):
        make_run(workers=3)


def test_a_configuration_without_a_number_of_steps_is_refused(make_run):
    with pytest.raises(ConfigError, match="lacks 'num_steps_per_env'.*dressage config --task rsl:pendulum"):
        make_run(config={"algorithm": {"class_name": "PPO"}})


def test_a_student_is_not_taught_from_the_command_line(make_run):
    with pytest.raises(ConfigError, match="Distillation needs a trained teacher"):
        make_run(config=distillation_config())


MISTAKES = {
    "gamma: '0.9'": ("'gamma' must be a finite number", "leave out the quotes"),
    "learning_rate: -1": ("'learning_rate' must be a finite number >= 0, got -1",),
    "schedule: adaptve": ("Did you mean 'adaptive'?",),
    "num_steps_per_env: '24'": ("num_steps_per_env must be a whole number of steps, at least 1, got '24'",),
    "num_steps_per_env: 0": ("num_steps_per_env must be a whole number of steps, at least 1, got 0",),
    "gama: 0.9": ("has no option 'gama'. Did you mean 'gamma'?",),
}


@pytest.mark.parametrize("task", ["rsl:pendulum", f"rsl:python:{__name__}:counted_pendulums"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_configuration_is_told_in_a_line_before_there_is_a_directory(
    dressage, tmp_path, task, mistake
):
    name, _, value = mistake.partition(": ")
    path = name if name.startswith("num_") else f"algorithm.{name}"
    shown = dressage(
        "train", task, *SMALL, "--set", f"rsl_rl.{path}={value}", "--no-film", "--run", tmp_path / "run"
    )
    assert (shown.exit_code, len(shown.output.strip().splitlines())) == (2, 1), shown.output
    assert all(text in shown.output for text in MISTAKES[mistake]), shown.output
    assert list(tmp_path.iterdir()) == []


def test_a_run_of_rsl_rl_starts_from_no_policy_whether_or_not_there_is_one(dressage, tmp_path):
    shown = dressage("train", "rsl:pendulum", "--init-from", tmp_path / "none", "--run", tmp_path / "run")
    assert shown.exit_code == 2
    assert "rsl_rl starts from no exported policy" in shown.output and "--run RUN --resume" in shown.output
    assert list(tmp_path.iterdir()) == []


# Whole runs


SMALL = ("--steps", 4 * UPDATE, "--set", "num_envs=4", "--set", "eval_episodes=2", "--set", "evaluations=2")


@pytest.fixture(scope="module")
def finished_torch(dressage, tmp_path_factory):
    """A short finished run of the hopper with a configuration from a file."""
    folder = tmp_path_factory.mktemp("rsl")
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(ppo_config()))
    path = folder / "run"
    shown = dressage("train", "rsl:hopper", "--config", config, *SMALL, "--quiet", "--run", path)
    assert shown.exit_code == 0, shown.output
    return path, shown.output


def test_a_run_leaves_what_every_run_leaves(finished_torch):
    path, _ = finished_torch
    names = {"config.json", "metrics.jsonl", "checkpoints", "policy", "learning_curve.png", "rollout.gif"}
    assert names | {"report.html", "summary.json"} <= {entry.name for entry in path.iterdir()}
    record = json.loads((path / "config.json").read_text())
    assert record["options"]["rsl_rl"] == ppo_config()
    assert record["changed"]["rsl_rl.actor.hidden_dims"] == [16, 16]
    assert {entry.name for entry in (path / "policy").iterdir()} >= {"model.pt", "policy.json"}


def test_the_policy_of_a_run_is_measured_and_filmed(finished_torch, dressage, tmp_path):
    path, _ = finished_torch
    measured = dressage("evaluate", path, "--episodes", 3, "--json")
    assert measured.exit_code == 0 and json.loads(measured.output)["episodes"] == 3
    filmed = dressage("play", path, "-o", tmp_path / "film.gif")
    assert filmed.exit_code == 0 and (tmp_path / "film.gif").stat().st_size > 1000


def test_a_run_exports_its_policy_with_a_filled_card(finished_torch):
    pytest.importorskip("onnxruntime")
    path, output = finished_torch
    assert "export  safetensors and ONNX, both checked against the policy" in output
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    last = [row for row in rows if row["kind"] == "eval"][-1]
    for name in ("policy.onnx", "policy.safetensors"):
        card = describe_file(path / "policy" / name)["card"]
        assert (card["task"], card["algorithm"], card["seed"]) == ("rsl:hopper", "rsl_rl", 0)
        assert (card["training_steps"], card["control_period_s"]) == (4 * UPDATE, 0.02)
        assert card["returns"]["estimate"] == pytest.approx(last["eval/return_mean"])
        assert [signal["unit"] for signal in card["observation"]][:3] == ["m", "rad", "m/s"]
        assert (len(card["observation"]), len(card["action"])) == (9, 2)


def test_exported_files_act_as_the_checkpoint_does_in_rsl_rls_own_model(finished_torch):
    pytest.importorskip("onnxruntime")
    folder = finished_torch[0] / "policy"
    weights = torch.load(folder / "model.pt", weights_only=True)["actor_state_dict"]
    network = torch.nn.Sequential(
        torch.nn.Linear(9, 16),
        torch.nn.ELU(),
        torch.nn.Linear(16, 16),
        torch.nn.ELU(),
        torch.nn.Linear(16, 2),
    )
    network.load_state_dict({name[4:]: value for name, value in weights.items() if name.startswith("mlp.")})
    seen = torch.randn(32, 9, generator=torch.Generator().manual_seed(0))
    mean, deviation = weights["obs_normalizer._mean"], weights["obs_normalizer._std"]
    with torch.no_grad():
        acted = network((seen - mean) / (deviation + 1e-2)).numpy()  # rsl_rl's eps
    for runner in (OnnxPolicy(folder / "policy.onnx"), NumpyPolicy(folder / "policy.safetensors")):
        np.testing.assert_allclose(runner.act(seen.numpy()), acted, rtol=1e-4, atol=1e-5)


def test_a_run_is_exported_verified_and_inspected_by_the_same_verbs(finished_torch, dressage, tmp_path):
    pytest.importorskip("onnxruntime")
    path = tmp_path / "hopper.onnx"
    shown = dressage("export", finished_torch[0], "--output", path)
    assert shown.exit_code == 0, shown.output
    assert dressage("verify", path).exit_code == 0
    card = " ".join(dressage("inspect", path).output.split())
    assert "7 commanded speed m/s" in card and "control period 0.02 s" in card
    assert path.read_bytes() == (finished_torch[0] / "policy" / "policy.onnx").read_bytes()


def test_numbers_that_nobody_named_are_named_by_group_and_place(make_run):
    run = make_run(task=f"rsl:python:{__name__}:counted_pendulums", evaluations=0)
    policy = run.policy(run.init())
    named = RslRl().signals(torch_task(f"rsl:python:{__name__}:counted_pendulums"), policy)
    assert [signal.name for signal in named.observation] == ["policy[0]", "policy[1]", "policy[2]"]
    assert [signal.name for signal in named.action] == ["action[0]"]
    assert named.control_period_s == 0.05


def test_a_finished_run_says_so_when_it_is_resumed(finished_torch, dressage):
    shown = dressage("train", "--run", finished_torch[0], "--resume")
    assert "is finished already, after 4 updates" in shown.output


def test_one_entry_of_the_configuration_is_changed_by_its_path(dressage, tmp_path):
    shown = dressage(
        *("train", "rsl:pendulum", *SMALL, "--quiet", "--no-film", "--run", tmp_path / "run"),
        *("--set", "rsl_rl.algorithm.gamma=0.5", "--set", "rsl_rl.actor.hidden_dims=[4]"),
    )
    options = json.loads((tmp_path / "run" / "config.json").read_text())["options"]
    assert shown.exit_code == 0, shown.output
    assert options["rsl_rl"]["algorithm"]["gamma"] == 0.5 and options["rsl_rl"]["actor"]["hidden_dims"] == [4]
    assert options["rsl_rl"]["critic"]["hidden_dims"] == [64, 64]


def test_tasks_algorithms_and_options_are_listed(dressage):
    assert "rsl:hopper" in dressage("tasks").output
    assert "rsl_rl" in dressage("algorithms").output
    shown = dressage("config", "--task", "rsl:pendulum", "--yaml").output
    assert yaml.safe_load(shown)["rsl_rl"]["algorithm"]["gamma"] == 0.95


MADE = []


def counted_pendulums(num_envs, seed):
    from dressage.policy.torch_envs.pendulum import Pendulum

    MADE.append((num_envs, seed))
    return Pendulum(num_envs=num_envs, seed=seed)


def test_a_task_of_the_users_own_is_made_once_and_only_when_training_starts(make_run):
    MADE.clear()
    run = make_run(task=f"rsl:python:{__name__}:counted_pendulums", evaluations=0)
    assert MADE == []
    state = trained(run, 1)
    assert MADE == [(4, 0)] and run.evaluate(state) == {}


def unplugged(num_envs, seed):
    raise OSError("no simulator here")


def nothing(num_envs, seed):
    counted_pendulums(num_envs, seed)


def too_few(num_envs, seed):
    return counted_pendulums(1, seed)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "nothing",
            "returned a NoneType, which has no num_envs, num_actions, .* must return an rsl_rl VecEnv",
        ),
        ("too_few", "was asked for 4 copies and made 1. It gets their number and a seed"),
    ],
)
def test_what_makes_no_environments_is_told_so(make_run, name, text):
    run = make_run(task=f"rsl:python:{__name__}:{name}", evaluations=0)
    with pytest.raises(EnvironmentContractError, match=text):
        run.init()


def test_a_run_that_cannot_start_leaves_no_directory(dressage, tmp_path):
    task = f"rsl:python:{__name__}:unplugged"
    shown = dressage("train", task, "--set", "num_envs=4", "--run", tmp_path / "run")
    assert shown.exit_code == 1 and "raised OSError: no simulator here" in shown.output
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_finds_no_cluster_leaves_no_directory(dressage, tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")

    def turn_away(**options):
        raise ConnectionError("Failed to connect to Ray cluster at 10.0.0.1:6379.")

    monkeypatch.setattr(ray, "init", turn_away)
    monkeypatch.setattr("dressage.runtime.ray_cluster.check_head", lambda address, timeout: None)
    run = tmp_path / "run"
    shown = dressage("train", "rsl:pendulum", "--cluster", "10.0.0.1:6379", "--run", run)
    assert shown.exit_code == 1 and "No Ray cluster lets this process in at '10.0.0.1:6379'" in shown.output
    assert not run.exists()


def test_a_dead_address_is_told_within_the_time_allowed_and_leaves_no_directory(dressage, tmp_path):
    pytest.importorskip("ray")
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        words = ("--cluster", address, "--set", "start_timeout_s=0.2", "--run", tmp_path / "run")
        shown = dressage("train", "rsl:pendulum", *words)
    assert shown.exit_code == 1 and "within 0.2 s (start_timeout_s)" in shown.output, shown.output
    assert list(tmp_path.iterdir()) == []
