"""The list of algorithms, and which of them trains a task."""

import json

import pytest

from dressage.cli.known_algorithms import ALGORITHMS, algorithm_for
from dressage.cli.task_names import open_task
from dressage.envs import make
from dressage.errors import ConfigError


def test_a_task_of_one_agent_is_trained_by_ppo_unless_another_is_named():
    assert algorithm_for("pendulum", make("pendulum"), None).name == "ppo"
    assert algorithm_for("pendulum", make("pendulum"), "ppo").name == "ppo"
    assert algorithm_for("shortcut_cmdp", make("shortcut_cmdp"), "cpo").name == "cpo"


def test_an_algorithm_is_refused_for_tasks_that_it_does_not_train():
    with pytest.raises(ConfigError, match="safe_spread has several agents; ppo trains tasks of one agent"):
        algorithm_for("safe_spread", make("safe_spread"), "ppo")


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: algorithm.name)
def test_presets_name_shipped_tasks_and_legal_options(algorithm):
    for task, preset in algorithm.presets.items():
        assert algorithm_for(task, open_task(task), algorithm.name) is algorithm
        options = algorithm.resolve(preset)
        assert {name: options[name] for name in preset} == preset


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: algorithm.name)
def test_steps_and_evaluations_follow_from_the_options(algorithm):
    needed = {"cost_limit": 1.0} if "cost_limit" in {option.name for option in algorithm.options} else {}
    options = algorithm.resolve({algorithm.steps_option: 4096, **needed})
    assert options[algorithm.steps_option] == 4096
    after = algorithm.updates_at_evaluations(options)
    assert list(after) == sorted(set(after))


def test_algorithms_are_listed_with_what_they_train(dressage):
    assert "one agent" in dressage("algorithms").output
    listed = json.loads(dressage("algorithms", "--json").output)
    assert listed[0] == {"name": "ppo", "trains": ["single"], "meaning": ALGORITHMS[0].help}
