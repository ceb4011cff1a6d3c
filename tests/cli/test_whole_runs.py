"""Whole runs through the command line: what training leaves, and what the other verbs make of it."""

import json
from contextlib import contextmanager

import imageio.v3 as imageio
import numpy as np
import pytest

from dressage.errors import ConfigError
from dressage.ppo import Policy
from tests.cli.short_training import SHORT


def rows_of(path):
    lines = (path / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line, parse_constant=pytest.fail) for line in lines]


def test_training_leaves_everything_that_the_design_names(finished):
    path, shown = finished
    names = {"config.json", "metrics.jsonl", "checkpoints", "policy", "learning_curve.png", "rollout.gif"}
    assert {entry.name for entry in path.iterdir()} == names | {"report.html", "summary.json", ".lock"}
    assert f"report  {path}/report.html" in " ".join(shown.split(" ")).replace("   ", "  ")


def test_the_rows_tell_every_evaluation_and_the_steps_really_taken(finished):
    rows = rows_of(finished[0])
    assert [row["updates"] for row in rows if row["kind"] == "eval"] == [0, 8, 16, 24, 32]
    assert rows[-1]["steps"] == 4096
    assert all(len(row["eval/returns"]) == 3 for row in rows if row["kind"] == "eval")
    assert all(
        {"train/loss", "train/entropy", "train/approx_kl"} <= row.keys()
        for row in rows
        if row["kind"] == "train"
    )


def test_the_record_tells_task_options_and_seeds(finished):
    record = json.loads((finished[0] / "config.json").read_text(encoding="utf-8"))
    assert (record["task"], record["algorithm"], record["seeds"]) == ("pendulum", "ppo", [0])
    assert record["options"]["NUM_ENVS"] == 8
    assert record["changed"]["NUM_HIDDEN_UNITS"] == 8


def test_the_saved_policy_acts(finished):
    action = Policy.load(finished[0] / "policy").get_action(np.array([1.0, 0.0, 0.0], np.float32))
    assert action.shape == (1,)
    assert abs(float(action[0])) <= 2.0


def test_the_film_shows_an_episode(finished):
    frames = imageio.imread(finished[0] / "rollout.gif", index=None, plugin="pillow")
    assert len(frames) > 50
    assert frames.std() > 0


def test_a_run_directory_is_refused_a_second_time(finished, dressage):
    shown = dressage("train", "pendulum", "--run", finished[0])
    assert shown.exit_code == 2
    assert "--resume" in shown.stderr


def test_a_run_that_another_process_trains_is_not_resumed(finished, dressage, monkeypatch):
    @contextmanager
    def held(path):
        raise ConfigError(f"{path} is being trained by process 4 on elsewhere, since 2026-01-02.")
        yield

    monkeypatch.setattr("dressage.cli.session.locked", held)
    shown = dressage("train", "--run", finished[0], "--resume")
    assert shown.exit_code == 2
    assert "is being trained by process 4 on elsewhere" in shown.stderr


def test_resuming_a_finished_run_says_that_it_is_finished(finished, dressage):
    before = rows_of(finished[0])
    shown = dressage("train", "--run", finished[0], "--resume")
    assert shown.exit_code == 0
    assert "is finished already, after 32 updates." in " ".join(shown.output.split())
    assert "Going on" not in shown.output
    assert rows_of(finished[0]) == before


def test_evaluating_tells_the_mean_with_its_interval(finished, dressage):
    shown = dressage("evaluate", finished[0], "--episodes", "4", "--json")
    assert shown.exit_code == 0
    result = json.loads(shown.output)
    assert (result["episodes"], result["unfinished"], result["seeds"]) == (4, 0, [0])
    assert result["low"] <= result["return"] <= result["high"]
    again = dressage("evaluate", finished[0], "--episodes", "4", "--json")
    assert json.loads(again.output) == result


def test_evaluating_shows_a_table(finished, dressage):
    shown = dressage("evaluate", finished[0], "--episodes", "4", "--stochastic", "--seed", "3")
    assert shown.exit_code == 0
    assert "(mean of 4 episodes, 95 % bootstrap interval; sampled actions)" in " ".join(shown.output.split())


def test_playing_writes_an_mp4(finished, dressage, tmp_path):
    shown = dressage("play", finished[0], "--output", tmp_path / "films" / "film.mp4")
    assert shown.exit_code == 0
    assert (tmp_path / "films" / "film.mp4").stat().st_size > 1000


def test_playing_refuses_an_unknown_seed_and_an_unknown_format(finished, dressage, tmp_path):
    assert "has no seed 9. It has: 0." in dressage("play", finished[0], "--trained-seed", "9").stderr
    refused = dressage("play", finished[0], "--output", tmp_path / "film.avi")
    assert refused.exit_code == 2


def test_plotting_lays_runs_over_one_another(finished, finished_seeds, dressage, tmp_path):
    target = tmp_path / "plots" / "compared.png"
    shown = dressage("plot", finished[0], finished_seeds[0], "--output", target, "--title", "two")
    assert (shown.exit_code, shown.output) == (0, f"{target}  Returns of 2 runs.\n")
    assert imageio.imread(target).shape[:2] == (672, 1152)


def test_the_plot_of_one_run_goes_into_its_folder_and_of_several_into_the_working_one(
    finished, finished_seeds, dressage, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    curve = finished[0] / "learning_curve.png"
    curve.unlink()
    assert dressage("plot", finished[0]).output == f"{curve}  Returns of 1 run.\n"
    assert curve.is_file()
    assert dressage("plot", finished[0], finished_seeds[0]).output.startswith("learning_curves.png  ")
    assert (tmp_path / "learning_curves.png").is_file()


def test_the_report_is_made_again(finished, dressage):
    (finished[0] / "report.html").unlink()
    (finished[0] / "learning_curve.png").unlink()
    assert dressage("report", finished[0]).exit_code == 0
    page = (finished[0] / "report.html").read_text(encoding="utf-8")
    assert page.count("data:image/") == 3
    assert "NUM_HIDDEN_UNITS" in page


def test_several_seeds_are_reported_by_interquartile_mean(finished_seeds, dressage):
    path, shown = finished_seeds
    last = rows_of(path)[-1]
    assert np.shape(last["eval/returns"]) == (3, 3)
    assert sorted(entry.name for entry in (path / "policy").iterdir()) == ["seed-5", "seed-6", "seed-7"]
    assert "interquartile mean of 3 seeds, 95 % stratified bootstrap" in " ".join(shown.split())
    assert not (path / "rollout.gif").exists()
    measured = json.loads(dressage("evaluate", path, "--episodes", "2", "--json").output)
    assert measured["seeds"] == [5, 6, 7]
    assert len(set(measured["seed_means"])) == 3


def test_one_of_several_seeds_is_played(finished_seeds, dressage, tmp_path):
    shown = dressage("play", finished_seeds[0], "--trained-seed", "6", "--output", tmp_path / "six.gif")
    assert shown.exit_code == 0
    assert (tmp_path / "six.gif").exists()


def test_tensorboard_files_are_written_on_demand(dressage, tmp_path):
    words = (*SHORT, "--no-film", "--tensorboard", "--quiet")
    shown = dressage("train", "pendulum", *words, "--run", tmp_path / "run")
    assert shown.exit_code == 0
    assert list((tmp_path / "run" / "tensorboard").iterdir())
    assert "steps/s  " not in shown.output


def test_tasks_config_and_doctor_print(dressage):
    listed = dressage("tasks").output
    assert "pendulum" in listed
    assert "gymnasium:" in listed
    assert "GAE_LAMBDA" in dressage("config").output
    assert json.loads(dressage("config", "--json").output)["GAMMA"]["default"] == 0.99
    assert "NORMALIZE_ENV: true" in dressage("config", "--yaml", "--task", "pendulum").output
    health = dressage("doctor").output
    assert "jax" in health
    assert "tracking" in health
