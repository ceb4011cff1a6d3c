"""What the cards of a run's policies say that each agent achieved."""

import json

import numpy as np
import pytest

from dressage.cli.card_pages import print_card
from dressage.cli.run_cards import cards_of
from dressage.export import describe_file
from dressage.reporting.metric_rows import encode, eval_row, read_rows
from dressage.reporting.run_folder import RunFolder, RunRecord
from tests.cli.paid_agents import COSTS, RETURNS, STEPS
from tests.cli.short_training import MANY_AGENTS, set_words

AGENTS = ("low", "high")
PLACE = {"updates": 3, "steps": 300, "time_s": 1.0, "steps_per_second": 100.0}
SHORT = set_words(MANY_AGENTS | {"evaluations": 1, "eval_episodes": 3})
LEARNED = {
    "compiled": ("python:tests.cli.paid_agents:make", "1"),
    "compiled, two seeds": ("python:tests.cli.paid_agents:make", "2"),
    "host": ("pettingzoo:tests.cli.paid_agents", "1"),
    "host, two seeds": ("pettingzoo:tests.cli.paid_agents", "2"),
}


@pytest.fixture(scope="module", params=LEARNED)
def paid(request, dressage, tmp_path_factory):
    """A short run of the agents who are paid by the clock, and the policy folders of its seeds."""
    task, seeds = LEARNED[request.param]
    path = tmp_path_factory.mktemp("paid") / "run"
    words = ("--seeds", seeds, "--no-film", "--quiet", "--run", path)
    shown = dressage("train", task, *SHORT, *words)
    assert shown.exit_code == 0, shown.output
    return path, [path / "policy"] if seeds == "1" else [path / "policy" / f"seed-{seed}" for seed in (0, 1)]


@pytest.mark.parametrize("agent", AGENTS)
def test_each_agents_card_has_its_own_return_and_cost(paid, agent):
    for folder in paid[1]:
        card = describe_file(folder / "safetensors" / f"{agent}.safetensors")["card"]
        for score, known in ((card["returns"], RETURNS), (card["cost"], COSTS)):
            assert (score["estimate"], score["low"], score["high"]) == (known[agent],) * 3
            assert (score["deviation"], score["episodes"], score["sampled"]) == (0.0, 3, False)
            assert (score["mean_of"], score["after_steps"]) == (None, None)


def test_the_rows_of_evaluations_keep_every_agents_episodes_beside_the_means(paid):
    last = [row for row in read_rows(paid[0] / "metrics.jsonl") if row["kind"] == "eval"][-1]
    seeds = len(paid[1])
    for agent in AGENTS:
        for name, known in (("return", RETURNS), ("cost", COSTS)):
            episodes, mean = [known[agent]] * 3, known[agent]
            assert last[f"eval/{name}s/{agent}"] == (episodes if seeds == 1 else [episodes] * seeds)
            assert last[f"eval/{name}_mean/{agent}"] == (mean if seeds == 1 else [mean] * seeds)
    mean = (RETURNS["low"] + RETURNS["high"]) / 2
    assert np.unique(last["eval/return_mean"]) == mean
    assert np.unique(last["eval/returns"]) == mean
    assert np.unique(last["eval/lengths"]) == STEPS


def test_a_run_whose_rows_lack_them_exports_with_the_mean_and_says_so(dressage, paid, tmp_path):
    run, _ = paid
    kept = (run / "metrics.jsonl").read_text()
    lacking = [
        {name: value for name, value in row.items() if not name.startswith(("eval/returns/", "eval/costs"))}
        for row in map(json.loads, kept.splitlines())
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lacking))
    shown = dressage("export", run, "--output", tmp_path, "--format", "safetensors")
    (run / "metrics.jsonl").write_text(kept)
    assert shown.exit_code == 0, shown.output
    file = tmp_path / "safetensors" / "high.safetensors"
    card = describe_file(file)["card"]
    assert (card["returns"]["estimate"], card["returns"]["mean_of"]) == (10.0, 2)
    assert "cost" not in card
    assert "; the mean over all 2 agents)" in " ".join(dressage("inspect", file).output.split())


def fabricated(path, returns, options=None, **rest):
    """A folder whose only row is an evaluation with these returns by agent."""
    row = eval_row(PLACE, evaluation(returns, **rest))
    (path / "metrics.jsonl").write_text(encode(row) + "\n")
    record = RunRecord("coupled_budget", "ippo", options or {}, {}, (0,), "2026-01-02T03:04:05")
    return RunFolder(path), record


def evaluation(returns, **rest):
    by_agent = {f"eval/returns/{agent}": np.array([values]) for agent, values in returns.items()}
    mean = np.mean([np.array([values]) for values in returns.values()], axis=0)
    finished = ~np.isnan(mean)
    lengths = np.full(mean.shape, 5)
    return {"eval/returns": mean, "eval/lengths": lengths, "eval/finished": finished} | by_agent | rest


def test_the_interval_is_that_of_the_agents_own_episodes_and_unfinished_ones_are_left_out(tmp_path):
    spread = list(np.arange(100.0))
    returns = {"low": [2.0] * 100 + [np.nan], "high": [*spread, np.nan]}
    cards = cards_of(*fabricated(tmp_path, returns), 0, AGENTS, 300, None)
    assert (cards["low"].returns.low, cards["low"].returns.high) == (2.0, 2.0)
    high = cards["high"].returns
    assert (high.estimate, high.episodes) == (49.5, 100)
    assert high.deviation == pytest.approx(28.866, abs=1e-3)  # sqrt((100^2 - 1) / 12)
    # 1.96 standard errors of the mean, as the normal distribution has it.
    assert (high.low, high.high) == pytest.approx((49.5 - 5.66, 49.5 + 5.66), abs=0.5)


def test_a_policy_that_learned_on_after_its_last_evaluation_says_which_was_measured(tmp_path, capsys):
    folder, record = fabricated(tmp_path, {"low": [1.0, 2.0], "high": [3.0, 4.0]})
    assert cards_of(folder, record, 0, AGENTS, 300, None)["low"].returns.after_steps is None
    card = cards_of(folder, record, 0, AGENTS, 1300, None)["low"]
    assert card.returns.after_steps == 300
    file = tmp_path / "policy.onnx"
    file.write_bytes(b"")
    graph = {"states": [], "inputs": [], "outputs": []}
    described = {"card": card.to_json(), "dressage": "1", "format": 1, "weights_sha256": "0", "graph": graph}
    print_card([file], described)
    assert "; of the policy after 300 steps)" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("options", "costs", "known"), [({}, 0.0, False), ({"cost_limit": 1.0}, 0.0, True), ({}, 0.5, True)]
)
def test_a_cost_is_told_where_there_was_one_or_a_limit(tmp_path, options, costs, known):
    rest = {name: np.full((1, 2), costs) for name in ("eval/costs", "eval/costs/low", "eval/costs/high")}
    returns = {"low": [1.0, 2.0], "high": [3.0, 4.0]}
    card = cards_of(*fabricated(tmp_path, returns, options, **rest), 0, AGENTS, 300, None)["low"]
    assert (card.cost is not None) == known
    assert not known or card.cost.estimate == costs


def test_what_was_never_evaluated_has_no_score(tmp_path):
    folder, record = fabricated(tmp_path, {"low": [np.nan], "high": [np.nan]})
    assert cards_of(folder, record, 0, AGENTS, 300, None)["low"].returns is None
    folder.metrics.unlink()
    assert cards_of(folder, record, 0, AGENTS, 300, None)["low"].returns is None


def test_the_card_of_a_shielded_agent_says_that_its_file_holds_no_shield(tmp_path):
    folder = RunFolder(tmp_path)
    folder.metrics.write_text("")
    record = RunRecord("shielded_platoon", "ippo", {}, {}, (0,), "2026-01-02T03:04:05")
    cards = cards_of(folder, record, 0, ("agent_0",), None, None)
    assert cards["agent_0"].note.startswith(
        "Without a shield: in the task a BarrierShield corrected the actions"
    )
