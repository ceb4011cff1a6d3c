"""Training under a limit from the command line, and the verdict on it."""

import json

import pytest

SMALL = {
    "num_envs": 2,
    "rollout_length": 10,
    "learning_epochs": 1,
    "mini_batches": 1,
    "network.hidden_sizes": "[4]",
    "total_timesteps": 40,
    "evaluations": 0,
}


def settings(**more):
    return [word for name, value in (SMALL | more).items() for word in ("--set", f"{name}={value}")]


def test_a_run_without_a_limit_is_refused_before_it_begins(dressage, tmp_path):
    run = ("--run", str(tmp_path / "run"))
    refused = dressage("train", "coupled_budget", "--algorithm", "cpo", *run, *settings())
    assert refused.exit_code == 2
    assert "CPO needs the option 'cost_limit'" in refused.output


@pytest.mark.slow
def test_limits_are_judged_by_agent_and_decide_the_exit_status(dressage, tmp_path):
    run = tmp_path / "run"
    limits = settings(cost_limit="{agent_0: 10.0, agent_1: 0.01}")
    words = ("--algorithm", "ippo-lagrangian", "--run", str(run), "--no-film", *limits)
    trained = dressage("train", "coupled_budget", *words)
    assert trained.exit_code == 0, trained.output
    judged = dressage("evaluate", str(run), "--require-limits", "--episodes", "200", "--json")
    assert judged.exit_code == 1
    report = json.loads(judged.output)
    assert report["kept"] is False
    verdicts = {one["agent"]: one["verdict"] for one in report["seeds"]["0"]["agents"]}
    assert verdicts == {"agent_0": "kept", "agent_1": "not kept"}
    assert "not kept" in dressage("evaluate", str(run), "--require-limits").output
