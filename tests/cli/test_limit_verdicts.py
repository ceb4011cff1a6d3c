"""Training under a limit from the command line, and the verdict on it."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from dressage.cli.results import show_results
from dressage.export import describe_file
from dressage.reporting.limit_reports import describe_limits
from dressage.reporting.metric_rows import encode, read_rows
from dressage.reporting.run_folder import write_json
from dressage.rl.safety import judge_limits
from tests.cli.short_training import MANY_AGENTS, set_words
from tests.reporting.fabricated_run import fabricate, finish


def settings(**more):
    return set_words(MANY_AGENTS | more)


def test_a_run_without_a_limit_is_refused_before_it_begins(dressage, tmp_path):
    run = ("--run", str(tmp_path / "run"))
    refused = dressage("train", "coupled_budget", "--algorithm", "cpo", *run, *settings())
    assert refused.exit_code == 2
    assert "CPO needs the option 'cost_limit'" in refused.output


def test_a_report_on_one_episode_is_refused(dressage, tmp_path):
    limits = settings(cost_limit=1.0, limit_episodes=1)
    words = ("--algorithm", "cpo", "--run", str(tmp_path / "run"))
    refused = dressage("train", "coupled_budget", *words, *limits)
    assert refused.exit_code == 2
    assert "limit_episodes: one episode says nothing of its own spread" in refused.output


def test_what_a_run_came_to_says_how_its_episodes_were_played(tmp_path, capsys):
    folder = fabricate(tmp_path / "run")
    last = read_rows(folder.metrics)[-1]
    with folder.metrics.open("a", encoding="utf-8") as file:
        file.write(encode(last | {"eval/cost_mean": 0.5}) + "\n")
    finish(folder)
    costs = np.tile([1.0, 2.0], 50)
    limits = {0: judge_limits({"a": {"returns": costs, "costs": costs, "finished": costs > 0}}, 2.0)}
    write_json(folder.summary, json.loads(folder.summary.read_text()) | {"limits": describe_limits(limits)})
    show_results(Console(width=200), folder, ())
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if line]
    told = {name: rest.strip() for name, rest in lines}
    assert told["return"].endswith("(mean of 20 episodes, 95 % bootstrap interval; most likely actions)")
    assert told["cost"] == "0.5 an episode  (most likely actions)"
    assert told["limits"] == "100 episodes, sampled actions:"
    assert told["a:"].endswith("limit 2: kept")


@pytest.mark.slow
def test_limits_are_judged_by_agent_and_decide_the_exit_status(dressage, tmp_path):
    run = tmp_path / "run"
    limits = settings(cost_limit="{agent_0: 10.0, agent_1: 0.01}", limit_episodes=200)
    words = ("--algorithm", "ippo-lagrangian", "--run", str(run), "--no-film", *limits)
    trained = dressage("train", "coupled_budget", *words)
    assert trained.exit_code == 0, trained.output
    judged = dressage("evaluate", str(run), "--require-limits", "--episodes", "200", "--json")
    assert judged.exit_code == 1
    report = json.loads(judged.output)
    assert report["kept"] is False
    verdicts = {one["agent"]: one["verdict"] for one in report["seeds"]["0"]["agents"]}
    assert verdicts == {"agent_0": "kept", "agent_1": "not kept"}
    by_default = dressage("evaluate", str(run), "--require-limits").output
    assert "not kept" in by_default and "over 1000 episodes" in by_default
    _same_verdicts_everywhere(dressage, run, trained.output, report["seeds"]["0"])


def _same_verdicts_everywhere(dressage, run, printed, report):
    """Training has judged the same episodes, and what it left behind says so."""
    (stored,) = json.loads((run / "summary.json").read_text())["limits"]
    assert stored == {"seed": 0} | report
    page, told = (run / "report.html").read_text(), " ".join(printed.split())
    assert "limits 200 episodes, sampled actions: agent_0: return" in told
    for agent, limit in (("agent_0", "10"), ("agent_1", "0.01")):
        (one,) = (one for one in report["agents"] if one["agent"] == agent)
        cells = f"<td>{limit}</td><td>{one['verdict']}</td><td>200</td>"
        assert re.search(f"<td>{agent}</td><td>[^<]*</td><td>[^<]*</td>{cells}", page)
        assert re.search(rf"{agent}: return [^:]*, cost [^:]*, limit {limit}: {one['verdict']}", told)
        file = run / "policy" / "safetensors" / f"{agent}.safetensors"
        cost = json.loads(dressage("inspect", str(file), "--json").output)["card"]["cost"]
        assert (cost["limit"], cost["verdict"], cost["episodes"]) == (float(limit), one["verdict"], 200)
        assert cost["estimate"] == pytest.approx(one["costs"]["mean"])
        shown = " ".join(dressage("inspect", str(file)).output.split())
        assert f"limit {limit}: {one['verdict']}" in shown.replace("10.0:", "10:")
    again = dressage("export", str(run), "--format", "safetensors", "--output", str(run / "again"))
    assert again.exit_code == 0, again.output
    assert "cost" in describe_file(Path(again.output.split()[0]))["card"]
