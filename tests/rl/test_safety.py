"""The verdict on a limit, by hand-made episodes and by a trained learner."""

import json

import numpy as np
import pytest
from scipy import stats

from dressage.envs import make as make_env
from dressage.envs import to_parallel_env
from dressage.errors import ConfigError
from dressage.reporting.metric_rows import encode
from dressage.rl.ippo import IPPO
from dressage.rl.ippo_lag import IPPO_Lagrangian
from dressage.rl.safety import SafetyReport, Verdict, judge_limits, safety_report
from tests.rl.constrained_toys import PAIR, Toll

SMALL = {"num_envs": 2, "rollout_length": 2, "network": {"hidden_sizes": [4]}}


def results(costs, **changes):
    costs = np.asarray(costs, np.float32)
    return {"a": {"returns": costs + 1, "costs": costs, "finished": np.ones(len(costs), bool)} | changes}


COSTS = np.tile([0.0, 1.0, 2.0, 3.0], 50)  # mean 1.5, deviation 1.1208, error 0.079254, reach 0.15628


@pytest.mark.parametrize(
    ("limit", "verdict"),
    [(1.7, Verdict.KEPT), (1.6, Verdict.UNDECIDED), (1.4, Verdict.UNDECIDED), (1.3, Verdict.NOT_KEPT)],
)
def test_a_limit_is_judged_by_the_interval_of_the_mean(limit, verdict):
    report = judge_limits(results(COSTS), limit)
    agent = report.agents[0]
    assert agent.verdict == verdict
    assert report.kept == (verdict == Verdict.KEPT)
    assert agent.costs.mean == pytest.approx(1.5)
    assert agent.costs.high - 1.5 == pytest.approx(0.15628, abs=1e-5)
    interval = stats.t.interval(0.95, len(COSTS) - 1, 2.5, stats.sem(COSTS))
    assert (agent.returns.low, agent.returns.high) == pytest.approx(interval)


def test_the_interval_holds_the_expectation_in_95_of_100_reports():
    rng = np.random.default_rng(0)
    reports = [judge_limits(results(rng.binomial(10, 0.2, 200)), 2.0).agents[0].costs for _ in range(2000)]
    share = np.mean([one.low <= 2.0 <= one.high for one in reports])
    assert share == pytest.approx(0.95, abs=3 * np.sqrt(0.95 * 0.05 / 2000))


def test_episodes_that_did_not_end_leave_a_limit_undecided():
    finished = np.arange(len(COSTS)) > 0
    agent = judge_limits(results(COSTS, finished=finished), 5.0).agents[0]
    assert agent.verdict == Verdict.UNDECIDED
    assert agent.unfinished == 1
    assert agent.costs.mean == pytest.approx(COSTS[1:].mean())


def test_the_report_is_a_table_and_a_record():
    report = judge_limits(results(COSTS), {"a": 2.0})
    assert report.text().splitlines() == [
        "agent  return              cost                limit  verdict  episodes",
        "a      2.5 [2.344, 2.656]  1.5 [1.344, 1.656]  2      kept     200",
        "95 % intervals over 200 episodes with sampled actions.",
    ]
    record = json.loads(json.dumps(report.as_json()))
    assert record["kept"] is True
    assert record["agents"][0]["verdict"] == "kept"
    assert SafetyReport.from_json(record) == report


def test_a_report_without_an_episode_that_ended_goes_through_json():
    report = judge_limits(results(COSTS, finished=np.zeros(len(COSTS), bool)), 2.0)
    again = SafetyReport.from_json(json.loads(encode(report.as_json())))
    assert again.rows() == report.rows()
    assert report.rows()[1][-2:] == ("undecided (200 episodes did not end)", "0")


@pytest.mark.parametrize(
    ("given", "limit", "text"),
    [
        (results(COSTS), {"b": 1.0}, "names 'b', which is no agent"),
        ({"a": {"returns": COSTS, "finished": COSTS > -1}}, 1.0, "reports no cost of agent 'a'"),
        (results(np.ones((2, 3)), finished=np.ones((2, 3), bool)), 1.0, r"got results of shape \(2, 3\)"),
    ],
)
def test_what_cannot_be_judged_is_refused(given, limit, text):
    with pytest.raises(ConfigError, match=text):
        judge_limits(given, limit)


@pytest.fixture(scope="module")
def trained():
    env = Toll()
    learner = IPPO_Lagrangian(SMALL | {"cost_limit": {"left": 10.0, "right": 0.1}}, seed=1)
    learner.train(env, 8)
    return learner, env


def test_a_trained_learner_is_judged_by_its_own_limits_and_by_others(trained):
    learner, env = trained
    report = safety_report(learner, env, 300)
    assert {agent.agent: agent.verdict for agent in report.agents} == {"left": "kept", "right": "not kept"}
    assert not report.kept
    assert safety_report(learner, env, 300, limits=10.0).kept
    assert [agent.agent for agent in report.agents] == list(PAIR)
    left, right = report.agents
    assert 0 <= left.costs.mean <= 2
    assert 0 <= right.costs.mean <= 3


def test_a_report_needs_a_limit_and_more_than_one_episode(trained):
    learner, env = trained
    with pytest.raises(ConfigError, match="IPPO has no cost_limit: say by `limits`"):
        safety_report(IPPO(SMALL), env, 300)
    with pytest.raises(ConfigError, match="safety_report needs episodes >= 2, got 1"):
        safety_report(learner, env, 1)


LIMITED = {
    "rollout_length": 2,
    "network": {"hidden_sizes": [4]},
    "cost_limit": {"left": 10.0, "right": 0.1},
}


def test_what_was_trained_in_the_only_environment_is_judged_in_others_of_its_kind():
    only = to_parallel_env(Toll())
    learner, peer = (IPPO_Lagrangian(options, seed=1) for options in (LIMITED, LIMITED | {"num_envs": 1}))
    learner.train(only, 6)
    before = only.save_state()
    report = safety_report(learner, lambda: to_parallel_env(Toll()), 50)
    # Nothing was stepped that training goes on in, and the episodes are those of training on a function.
    np.testing.assert_equal(only.save_state(), before)
    make = lambda: to_parallel_env(Toll())  # noqa: E731
    peer.train(make, 6)
    assert report == safety_report(peer, make, 50)
    assert learner.train(only, 6).progress.steps == 12


class Mirrored(Toll):
    @property
    def possible_agents(self):
        return PAIR[::-1]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (lambda only: only, "Give a function without arguments that makes one like it; got ParallelFace"),
        (lambda only: to_parallel_env(Toll()), "trained in the one ParallelFace that there is"),
        (
            lambda only: lambda: to_parallel_env(make_env("coupled_budget")),
            "agent 'left' has .* there and no part in this environment",
        ),
        (
            lambda only: lambda: to_parallel_env(Mirrored()),
            "the agents' order is left, right there and right, left in this environment",
        ),
    ],
)
def test_episodes_need_environments_of_their_own_of_the_same_kind(given, text):
    only = to_parallel_env(Toll())
    learner = IPPO_Lagrangian(LIMITED, seed=1)
    learner.train(only, 2)
    with pytest.raises(ConfigError, match=text):
        safety_report(learner, given(only), 10)


def test_a_result_is_not_resumed_over_the_same_agents_in_another_order():
    result = IPPO_Lagrangian(LIMITED, seed=1).train(Toll(), 16)
    with pytest.raises(
        ConfigError, match="cannot go on from this result: the agents' order is left, right there"
    ):
        IPPO_Lagrangian(LIMITED, seed=1).train(Mirrored(), 16, resume_from=result)
