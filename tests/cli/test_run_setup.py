"""From what a user typed to a complete record of the run."""

import pytest

from dressage import ppo
from dressage.cli.run_setup import (
    Request,
    default_folder,
    new_folder,
    new_record,
    parse_settings,
    plan_again,
)
from dressage.cli.single_agent_ppo import SingleAgentPPO
from dressage.errors import ConfigError
from dressage.reporting.run_folder import RunFolder, RunRecord


def record_of(request):
    return new_record(request, SingleAgentPPO())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("LR=3e-4", 3e-4),
        ("TOTAL_TIMESTEPS=1e6", 1e6),
        ("NUM_ENVS=8", 8),
        ("SQUASH=false", False),
        ("HIDDEN_ACTIVATION=relu", "relu"),
        (" LR = 0.5", 0.5),
    ],
)
def test_settings_are_read_as_yaml_and_numbers_with_an_exponent_count_as_numbers(text, value):
    (parsed,) = parse_settings([text]).values()
    assert parsed == value
    assert type(parsed) is type(value)


def test_a_record_holds_every_option_and_those_that_were_changed():
    record = record_of(Request("pendulum", settings=["LR=1e-3", "NUM_ENVS=16"], steps=5000, use_preset=False))
    assert set(record.options) == {option.name for option in ppo.OPTIONS}
    assert record.changed == {"LR": 1e-3, "NUM_ENVS": 16, "TOTAL_TIMESTEPS": 5000}
    assert record.versions["jax"]
    assert record.machine["cores"]


def test_seeds_are_counted_up_from_the_first():
    assert record_of(Request("pendulum", first_seed=7, seeds=3)).seeds == (7, 8, 9)


def test_a_setting_overrules_the_preset():
    preset = record_of(Request("pendulum"))
    assert preset.preset["NORMALIZE_ENV"] is True
    assert preset.options["NORMALIZE_ENV"] is True
    assert record_of(Request("pendulum", settings=["NORMALIZE_ENV=false"])).options["NORMALIZE_ENV"] is False
    assert record_of(Request("pendulum", use_preset=False)).options["NORMALIZE_ENV"] is False


def test_a_record_read_back_gives_the_same_configuration(tmp_path):
    record = record_of(Request("pendulum", settings=["LR=1e-3"]))
    with new_folder(tmp_path / "run", record):
        pass
    again = RunRecord.read(RunFolder(tmp_path / "run"))
    assert again == record
    plan = plan_again(again)
    assert plan.algorithm.name == "ppo"
    assert plan.trainer.config == ppo.Config.from_mapping(dict(record.options))


def test_a_run_directory_is_not_overwritten(tmp_path):
    record = record_of(Request("pendulum"))
    with new_folder(tmp_path / "run", record):
        pass
    refused = pytest.raises(ConfigError, match=r"Go on with it by: dressage train --run .*run --resume")
    with refused, new_folder(tmp_path / "run", record):
        pytest.fail("the folder was taken twice")


def test_a_folder_with_something_else_in_it_is_not_touched(tmp_path):
    (tmp_path / "thesis.tex").write_text("", encoding="utf-8")
    refused = pytest.raises(ConfigError, match="exists and is no empty folder")
    with refused, new_folder(tmp_path, record_of(Request("pendulum"))):
        pytest.fail("the folder was taken")
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_folder_that_another_process_took_meanwhile_is_refused(tmp_path, monkeypatch):
    record = record_of(Request("pendulum"))

    def be_slower(path):
        path.mkdir()
        record.write(RunFolder(path))

    monkeypatch.setattr("dressage.cli.run_setup.make_folder", be_slower)
    with pytest.raises(ConfigError, match="holds a run already"), new_folder(tmp_path / "run", record):
        pytest.fail("the folder was taken twice")


def test_the_default_folder_names_task_and_seed_and_the_time_where_that_is_taken(tmp_path):
    plain = default_folder("gymnasium:CartPole-v1", 3, tmp_path)
    assert plain == tmp_path / "gymnasium-CartPole-v1-3"
    plain.mkdir()
    assert default_folder("gymnasium:CartPole-v1", 3, tmp_path).name.startswith("gymnasium-CartPole-v1-3-2")
