"""One row of several updates: what is counted over the run stands as it stood last, the rest by its kind."""

import pytest

from dressage.runtime import Engine, RuntimeConfig
from dressage.runtime.metric_kinds import KINDS, summarize_updates
from tests.runtime.toys import Rows, spec

UPDATES = [
    {"lost": 0, "lag": 0.0, "late": 1, "speed": 10.0, "rollout/episodes": 1, "return": 5.0},
    {"lost": 0, "lag": 3.0, "late": 0, "speed": 20.0, "rollout/episodes": 0},
    {"lost": 1, "lag": 1.0, "late": 2, "speed": 60.0, "rollout/episodes": 3, "return": 1.0},
]
OWN = {"lost": "counter", "lag": "peak", "late": "count", "speed": "mean", "return": "episode mean"}


def test_each_kind_of_metric_is_put_together_in_its_own_way():
    assert summarize_updates(UPDATES, {**KINDS, **OWN}) == {
        "lost": 1.0,
        "lag": 3.0,
        "late": 3.0,
        "speed": 30.0,
        "rollout/episodes": 4.0,
        "return": 2.0,  # 5 once and 1 three times
    }


def test_a_metric_that_nobody_declared_is_a_mean_over_the_updates_that_have_it():
    assert summarize_updates([{"x": 1.0}, {}, {"x": 2.0}], {}) == {"x": 1.5}


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_every_metric_of_the_engine_has_a_declared_kind(mode):
    rows = Rows()
    with Engine(spec(rollout_mode=mode), RuntimeConfig(), sinks=[rows]) as engine:
        engine.run(3)
    row = max(rows.of("train"), key=len)
    metrics = {name for name in row if "/" in name and not name.startswith("training/")}
    assert metrics | {"steps_per_second"} == KINDS.keys()


def test_the_last_row_of_an_asynchronous_run_counts_what_was_collected_and_never_used():
    rows = Rows()
    config = RuntimeConfig(workers=2, transport="inline", max_lag=3)
    with Engine(spec(rollout_mode="async"), config, sinks=[rows]) as engine:
        engine.run(5)
        last = rows.of("train")[-1]
        assert {name: last[name] for name in engine.counters.metrics()} == engine.counters.metrics()


def test_whether_a_resumption_is_exact_is_told_once_however_often_the_run_goes_on():
    rows = Rows()
    with Engine(spec(), sinks=[rows]) as engine:
        for updates in (1, 2, 3):
            engine.run(updates)
    assert [row["event"] for row in rows.of("event")] == ["exact resume: yes"]
