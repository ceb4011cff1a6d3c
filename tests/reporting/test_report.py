"""The report: self-contained, escaped, and complete with whatever a run directory holds."""

import json
import math
import re

import numpy as np
import pytest

from dressage.errors import CheckpointError, ConfigError
from dressage.reporting.limit_reports import describe_limits, limit_lines, limit_section
from dressage.reporting.metric_rows import encode, read_rows
from dressage.reporting.plots import learning_curve, write_learning_curves
from dressage.reporting.report import Findings, write_report
from dressage.reporting.run_folder import RunFolder, RunRecord, read_summary, write_json
from dressage.rl.safety import judge_limits
from tests.reporting.fabricated_run import OPTIONS, fabricate, finish

EPISODES = {
    "returns": np.full(100, 4.0),
    "costs": np.tile([1.0, 2.0], 50),
    "finished": np.ones(100, bool),
}


def report_of(folder):
    return write_report(folder, OPTIONS).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    folder = fabricate(tmp_path_factory.mktemp("runs") / "pendulum 0")
    finish(folder)
    write_learning_curves(folder.curve, [learning_curve("pendulum", read_rows(folder.metrics))], "pendulum")
    return folder


@pytest.fixture(scope="module")
def page(finished_run):
    return report_of(finished_run)


def test_the_page_needs_nothing_outside_itself(page):
    sources = re.findall(r'src="([^"]{0,30})', page)
    assert len(sources) == 3
    assert all(source.startswith("data:image/") for source in sources)
    assert not re.search(r"<script|<link|url\(|@import", page)


def test_the_headline_is_the_last_evaluation_with_its_interval(page):
    assert re.search(r'class="result">-\d+\.\d <small> \[-\d+\.\d, -\d+\.\d\]</small>', page)
    assert "mean of 20 episodes, 95 % bootstrap interval" in page


def test_changed_options_stand_beside_their_defaults(page):
    assert '<td>LR</td><td>0.001</td><td class="quiet">0.0005</td>' in page
    assert "Copies that run at once." in page


def test_times_versions_and_circumstances_are_told(page):
    for text in ("500,736", "500,000", "171,23", "3.1 s", "0.10.2", "exact resume", "2026-01-02 03:04:05"):
        assert text in page


def test_what_comes_from_outside_is_escaped(page):
    assert "Abacus &lt;2&gt;" in page
    assert "Abacus <2>" not in page


def test_it_says_how_to_go_on_with_paths_that_a_shell_takes(page, finished_run):
    assert f"dressage evaluate &#x27;{finished_run.path}&#x27; --episodes 100" in page
    assert "dressage train pendulum --seed 1 --set LR=0.001" in page
    assert "--resume" not in page


def test_a_run_under_a_limit_says_for_every_agent_whether_it_was_kept(tmp_path):
    folder = fabricate(tmp_path / "run")
    finish(folder)
    limits = {0: judge_limits({"<a>": EPISODES, "b": EPISODES}, {"<a>": 2.0, "b": 1.0})}
    write_json(folder.summary, read_summary(folder) | {"limits": describe_limits(limits)})
    page = report_of(folder)
    assert "<h2>Cost limits</h2>" in page
    # By hand: mean 1.5, deviation 0.5025, error 0.05025, 1.984 of them either way.
    cost = "<td>1.5 [1.4, 1.6]</td>"
    assert f"<td>&lt;a&gt;</td><td>4 [4, 4]</td>{cost}<td>2</td><td>kept</td><td>100</td>" in page
    assert f"<td>b</td><td>4 [4, 4]</td>{cost}<td>1</td><td>not kept</td><td>100</td>" in page
    assert list(limit_lines(limits)) == [
        "100 episodes, sampled actions:",
        "<a>: return 4 [4, 4], cost 1.5 [1.4, 1.6], limit 2: kept",
        "b: return 4 [4, 4], cost 1.5 [1.4, 1.6], limit 1: not kept",
    ]


def test_of_many_limits_the_terminal_names_those_that_are_not_kept():
    limits = dict.fromkeys(map(str, range(10)), 2.0) | {"9": 1.0}
    reports = {seed: judge_limits(dict.fromkeys(limits, EPISODES), limits) for seed in (3, 4)}
    assert list(limit_lines(reports)) == [
        "100 episodes for each seed, sampled actions:",
        "18 of 20 kept",
        "9, seed 3: return 4 [4, 4], cost 1.5 [1.4, 1.6], limit 1: not kept",
        "9, seed 4: return 4 [4, 4], cost 1.5 [1.4, 1.6], limit 1: not kept",
    ]
    section = limit_section(reports)
    assert "<th>seed</th><th>agent</th>" in section
    assert section.count("<td>kept</td>") == 18


def test_a_run_without_a_limit_says_nothing_of_limits(page):
    assert "Cost limits" not in page


def test_several_seeds_get_a_table_and_the_reference(tmp_path):
    folder = fabricate(tmp_path / "run", seeds=(3, 4, 5))
    page = report_of(folder)
    assert "interquartile mean of 3 seeds, 95 % stratified bootstrap interval" in page
    assert "Agarwal et al." in page
    assert "<tr><td>5</td>" in page
    assert "dressage train pendulum --seed 6 --seeds 3" in page


def test_an_unfinished_run_says_so_and_how_to_resume_it(tmp_path):
    folder = fabricate(tmp_path / "run")
    page = report_of(folder)
    assert '<span class="badge interrupted">unfinished</span>' in page
    assert f"dressage train --run {folder.path} --resume" in page


def test_without_a_film_the_reason_stands_there(tmp_path):
    folder = fabricate(tmp_path / "run")
    finish(folder, note="No film: Walker has no render(state) that draws a picture.")
    folder.film.unlink()
    write_learning_curves(folder.curve, [learning_curve("run", read_rows(folder.metrics))], "")
    assert "No film: Walker has no render(state)" in report_of(folder)


def test_a_run_without_evaluations_has_a_report(tmp_path):
    assert "no evaluation" in report_of(fabricate(tmp_path / "run", evaluations=False))


def test_a_run_without_any_row_has_a_report(tmp_path):
    assert "no evaluation" in report_of(fabricate(tmp_path / "run", points=0))


def test_a_folder_without_a_run_is_refused_by_name(tmp_path):
    with pytest.raises(ConfigError, match=rf"{tmp_path} is not a run directory: it has no config\.json\."):
        RunRecord.read(RunFolder(tmp_path))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", r"config\.json is damaged"),
        ("[]", "holds no JSON object"),
        ("{}", "lacks algorithm, changed, created"),
    ],
)
def test_a_damaged_record_is_refused_by_name(content, complaint, tmp_path):
    (tmp_path / "config.json").write_text(content, encoding="utf-8")
    with pytest.raises(CheckpointError, match=complaint):
        RunRecord.read(RunFolder(tmp_path))


@pytest.mark.parametrize(
    ("entry", "complaint"),
    [
        ({"seeds": 5}, "seeds is 5"),
        ({"seeds": []}, r"seeds are \[\]"),
        ({"seeds": ["a"]}, r"seeds are \['a'\]"),
        ({"options": None}, "options is None"),
        ({"machine": []}, r"machine is \[\]"),
    ],
)
def test_a_record_with_an_entry_of_another_type_is_refused_by_name(entry, complaint, tmp_path):
    folder = fabricate(tmp_path / "run")
    write_json(folder.config, json.loads(folder.config.read_text(encoding="utf-8")) | entry)
    with pytest.raises(CheckpointError, match=rf"config\.json is damaged: {complaint}"):
        RunRecord.read(folder)


@pytest.mark.parametrize(
    ("entry", "complaint"), [({"updates": "9"}, "updates is '9'"), ({"film": 1}, "film is 1")]
)
def test_a_damaged_summary_is_refused_by_name(entry, complaint, tmp_path):
    folder = fabricate(tmp_path / "run")
    finish(folder)
    write_json(folder.summary, json.loads(folder.summary.read_text(encoding="utf-8")) | entry)
    with pytest.raises(CheckpointError, match=rf"summary\.json is damaged: {complaint}"):
        write_report(folder, OPTIONS)


def test_the_headline_says_after_how_many_steps_it_was_measured(tmp_path):
    assert "return per episode after 501,760 steps: mean of 20 episodes" in report_of(
        fabricate(tmp_path / "run")
    )


def test_a_speed_that_was_not_measured_has_no_tile(tmp_path):
    folder = fabricate(tmp_path / "run")
    finish(folder)
    assert "steps per second" in report_of(folder)
    write_json(folder.summary, read_summary(folder) | {"steps_per_second": None})
    assert "steps per second" not in report_of(folder)


def test_agents_are_told_apart_with_returns_and_costs(tmp_path):
    folder = fabricate(tmp_path / "run", seeds=(0, 1))
    last = read_rows(folder.metrics)[-1]
    of_agents = {
        "eval/return_mean/left": [1.0, 3.0],
        "eval/return_mean/right": [None, 7.0],
        "eval/cost_mean": [0.25, 0.75],
        "eval/cost_mean/left": [0.5, 1.5],
        "eval/cost_mean/right": [0.0, 0.0],
    }
    with folder.metrics.open("a", encoding="utf-8") as file:
        file.write(encode(last | of_agents) + "\n")
    page = report_of(folder)
    assert "<tr><td>left</td><td>2</td><td>1</td></tr><tr><td>right</td><td>7</td><td>0</td></tr>" in page
    assert "<dt>cost per episode, most likely actions</dt><dd>0.5</dd>" in page


def test_a_run_of_one_agent_has_no_table_of_agents(finished_run):
    assert "<h2>Agents</h2>" not in report_of(finished_run)


def test_a_record_comes_back_as_it_was_written(tmp_path):
    folder = fabricate(tmp_path / "run", seeds=(1, 2))
    record = RunRecord.read(folder)
    assert (record.task, record.seeds, record.changed) == ("pendulum", (1, 2), {"LR": 1e-3})
    assert [path.name for path in folder.path.iterdir() if path.suffix == ".part"] == []


@pytest.mark.parametrize(
    ("costs", "options", "told"),
    [
        ([0.0, 0.0], {}, None),
        ([2.0, 0.0], {}, 0.0),
        ([0.0, 0.0], {"cost_limit": 1.0}, 0.0),
        ([1.0, 3.0], {}, 3.0),
    ],
)
def test_a_cost_is_told_where_something_ever_cost_or_is_limited(costs, options, told, tmp_path):
    rows = [{"kind": "eval", "eval/cost_mean": cost} for cost in costs]
    record = RunRecord("task", "ippo", options, {}, (0,), "")
    cost = Findings(RunFolder(tmp_path), record, rows, {}, None, rows[-1], ()).cost
    assert math.isnan(cost) if told is None else cost == told
