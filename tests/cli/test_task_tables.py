"""How tasks are listed, for people on narrow terminals and for programs."""

import json

from dressage.cli.single_agent_ppo import SingleAgentPPO
from dressage.envs import PREFIXES, tasks


def test_every_task_is_listed_with_its_kind(dressage, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    words = [line.split() for line in dressage("tasks").output.splitlines()]
    kinds = {line[0]: line[1] for line in words if len(line) > 1}
    assert {kinds[name] for name in tasks()} == {"single", "multi"}
    assert (kinds["pendulum"], kinds["safe_spread"], kinds["pettingzoo:"]) == ("single", "multi", "multi,")
    assert all(f"{prefix}:" in kinds for prefix in PREFIXES)


def test_presets_are_shown_whole_on_a_narrow_terminal(dressage, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = dressage("tasks").output
    assert "…" not in shown
    for preset in SingleAgentPPO.presets.values():
        assert all(f"{name}={value}" in shown for name, value in preset.items())


def test_tasks_are_listed_as_json_for_programs(dressage):
    listed = json.loads(dressage("tasks", "--json").output)
    assert listed["tasks"]["cartpole"]["max_steps"] == 500
    assert listed["tasks"]["cartpole"]["presets"]["ppo"]["LR"] == 1e-3
    assert listed["tasks"]["safe_spread"]["kind"] == "multi"
    assert listed["prefixes"]["gymnasium"]["kind"] == "single, host"
