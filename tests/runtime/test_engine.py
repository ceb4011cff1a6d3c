"""The loop of an engine with its workers in one process, and what it keeps account of."""

import numpy as np
import pytest

from dressage.errors import (
    ConfigError,
    EnvironmentContractError,
    EnvironmentRaisedError,
    NonFiniteError,
    StaleWeightsError,
)
from dressage.policy.base_policy import EnvMeta, Fragment, PolicyRole, TrainConfig
from dressage.runtime import Engine, RuntimeConfig, runtime_config
from dressage.runtime.rollout_worker import OpenEpisodes
from tests.runtime.toys import (
    STEPS,
    FailingWalk,
    LinearPolicy,
    Rows,
    StubbornPolicy,
    Walk,
    config,
    spec,
)


def train(updates=4, made=None, rows=None, **options):
    sinks = () if rows is None else (rows,)
    with Engine(made or spec(), RuntimeConfig(**options), sinks=sinks) as engine:
        report = engine.run(updates)
        return engine.learner.parameters["mean"], report, engine


def by_hand(updates, seed=0):
    """The same training as a plain loop on one stream: seed, environment, parameters, then turn by turn."""
    policy = LinearPolicy(config(), PolicyRole.TRAIN)
    policy.seed(seed)
    env = Walk(seed)
    policy.init_train(TrainConfig(), EnvMeta(num_envs=3))
    actor = LinearPolicy(config(), PolicyRole.EVAL)
    actor.init_eval(None, env.meta())
    ret = env.observe()
    for _ in range(updates):
        actor.load_weights(policy.weights())
        transitions = []
        for _ in range(STEPS):
            response = actor.rollout_step(ret)
            ret = env.step(response.action)
            transitions.append(actor.postprocess(ret, response))
        policy.update_dataset([actor.close_fragment(transitions, ret)])
        policy.train()
    return policy.parameters["mean"]


def test_one_inline_worker_is_the_plain_loop_bit_for_bit():
    mean, report, _ = train(5, seed=3, workers=1)
    np.testing.assert_array_equal(mean, by_hand(5, seed=3))
    assert report.updates == 5
    assert report.steps == 5 * 3 * STEPS
    assert report.exact_resume == "yes"


def test_the_same_seed_gives_the_same_and_another_seed_another():
    one, again, other = (train(3, seed=seed, workers=2, transport="inline")[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(one, other)


def test_two_workers_draw_from_streams_of_their_own():
    rows = Rows()
    _, report, engine = train(2, rows=rows, workers=2, transport="inline")
    first, second = (worker["action"] for worker in engine.learner.given)
    assert not np.array_equal(first, second)
    assert report.steps == 2 * 2 * 3 * STEPS
    assert [row["updates"] for row in rows.of("train")] == [1, 2]


def test_every_row_accounts_for_all_steps_and_times_every_stage():
    rows = Rows()
    train(3, rows=rows)
    for number, row in enumerate(rows.of("train"), start=1):
        assert row["runtime/collected_steps"] == row["runtime/used_steps"] + row["runtime/dropped_steps"]
        assert row["runtime/used_steps"] == row["steps"] == number * 3 * STEPS
        stages = [row[f"time/{name}_s"] for name in ("collect", "transfer", "learn", "publish", "checkpoint")]
        assert all(seconds >= 0 for seconds in stages)
        assert sum(stages) <= row["time/update_s"]
        assert row["runtime/lag_max"] == 0
    assert rows[0]["event"] == "exact resume: yes"


def test_episode_metrics_are_those_of_whole_episodes_across_fragments():
    rows = Rows()
    train(40, rows=rows, seed=5)
    counted = sum(row["rollout/episodes"] for row in rows.of("train"))
    lengths = sum(row.get("rollout/episode_length", 0) * row["rollout/episodes"] for row in rows.of("train"))
    steps = 40 * 3 * STEPS
    assert steps - 3 * 9 <= lengths <= steps  # all but the three open episodes, of 9 steps at most
    assert 2 <= lengths / counted <= 9


def test_episodes_are_counted_as_a_plain_loop_counts_them():
    generator = np.random.default_rng(0)
    counted, returns, lengths = OpenEpisodes(4), np.zeros(4), np.zeros(4)
    for likely in (0.2, 0.0, 0.0, 0.2, 0.2, 0.0):
        rewards = generator.standard_normal((5, 4))
        terminated, truncated = generator.random((5, 4)) < likely, generator.random((5, 4)) < likely / 2
        steps = {"reward": rewards, "terminated": terminated, "truncated": truncated}
        found = counted.add(Fragment("any", 0, steps, {}))
        finished = []
        for reward, ended in zip(rewards, terminated | truncated, strict=True):
            returns, lengths = returns + reward, lengths + 1
            finished += list(zip(returns[ended], lengths[ended], strict=True))
            returns[ended] = lengths[ended] = 0
        assert found.count == len(finished)
        np.testing.assert_allclose(found.returns, sum(total for total, _ in finished), atol=1e-9)
        assert found.lengths == sum(length for _, length in finished)
        np.testing.assert_allclose(counted.rows, [returns, lengths], atol=1e-9)


def test_a_callback_ends_the_run_after_its_update():
    with Engine(spec()) as engine:
        report = engine.run(10, stop=lambda row: row["updates"] == 3)
        assert report.updates == 3
        assert engine.run(5).updates == 5  # and it goes on


def test_a_synchronous_fragment_of_old_weights_is_refused_with_both_versions():
    with (
        Engine(spec(policy=StubbornPolicy)) as engine,
        pytest.raises(
            StaleWeightsError, match="Worker 0 acted by the weights of version 1, .* learner is at 2;"
        ),
    ):
        engine.run(5)


@pytest.mark.parametrize("lag", [1, 2])
def test_an_asynchronous_run_lags_behind_by_at_most_what_is_allowed(lag):
    rows = Rows()
    _, _, engine = train(6, spec(rollout_mode="async"), rows, workers=2, transport="inline", max_lag=lag)
    lags = [row["runtime/lag_max"] for row in rows.of("train")]
    assert lags[:2] == [0, 1]  # nothing is older than the first weights
    assert 1 <= min(lags[1:]) <= max(lags) <= lag
    assert max(engine.learner.lags) == lags[-1]
    assert rows[0]["event"] == "exact resume: no (asynchronous fragments are not saved)"
    last = rows.of("train")[-1]
    assert last["runtime/collected_steps"] == last["runtime/used_steps"] + last["runtime/dropped_steps"]
    assert engine.counters.collected_steps == engine.counters.used_steps + engine.counters.dropped_steps


class LateTransport:
    """Hands out every fragment with weights one version older than they are said to be allowed."""

    travelling_stream = False
    in_process = True

    def __init__(self, inner):
        self.inner = inner
        self.kept = []

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def request(self, worker, order):
        self.kept.append(order)
        self.inner.request(worker, self.kept[0] if len(self.kept) == 4 else order)


def test_an_asynchronous_fragment_that_is_too_old_is_dropped_and_collected_anew():
    from dressage.runtime.inline import InlineTransport

    made = spec(rollout_mode="async")
    late = LateTransport(InlineTransport(made, shares_stream=False))
    rows = Rows()
    with Engine(made, RuntimeConfig(max_lag=1), sinks=[rows], transport=late) as engine:
        engine.run(5)
    last = rows.of("train")[-1]
    assert last["runtime/stale_fragments"] == 1
    assert last["runtime/dropped_steps"] == 3 * STEPS
    assert last["runtime/collected_steps"] == last["runtime/used_steps"] + last["runtime/dropped_steps"]


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (
            "reward",
            "environment walk, copy 1, step 8 .*: reward is not finite. It comes from the environment",
        ),
        ("observation", "environment walk, copy 2, step 9 .*: observation is not finite"),
    ],
)
def test_a_number_that_is_not_finite_ends_the_run_and_is_named(tmp_path, how, words):
    with Engine(spec(FailingWalk(str(tmp_path / "once"), how))) as engine:
        engine.run(1)
        before = engine.learner.parameters["mean"]
        with pytest.raises(NonFiniteError, match=words):
            engine.run(2)
        np.testing.assert_array_equal(engine.learner.parameters["mean"], before)


def test_the_last_observation_of_a_fragment_is_looked_at_too(tmp_path):
    with (
        Engine(spec(FailingWalk(str(tmp_path / "once"), "observation", step=STEPS))) as engine,
        pytest.raises(NonFiniteError, match="copy 2, step 5 .*: observation is not finite"),
    ):
        engine.run(1)


@pytest.mark.parametrize("how", ["reward", "observation"])
def test_in_quarantine_such_a_fragment_is_dropped_and_counted(tmp_path, how):
    rows = Rows()
    failing = FailingWalk(str(tmp_path / "once"), how)
    mean, report, _ = train(4, spec(failing), rows, non_finite="quarantine")
    last = rows.of("train")[-1]
    assert np.isfinite(mean).all()
    assert report.updates == 4
    assert last["runtime/quarantined_fragments"] == last["runtime/restarts"] == 1
    assert last["runtime/dropped_steps"] == 3 * STEPS
    assert last["runtime/collected_steps"] == 5 * 3 * STEPS
    event = rows.of("event")[1]
    assert event["event"].startswith("worker 0 begins anew with seed")
    assert event["seed"] != 0


def test_a_quarantine_that_never_ends_is_ended_by_the_budget(tmp_path):
    failing = FailingWalk(str(tmp_path / "always"), "reward", step=3, always=True)
    with pytest.raises(NonFiniteError, match="The run has made 2 restarts, all that restart_budget allows"):
        train(4, spec(failing), non_finite="quarantine", restart_budget=2)
    seeds = (tmp_path / "always").read_text().split()
    assert len(seeds) == len(set(seeds)) == 3  # each life drew from another seed


def test_an_environment_that_raises_ends_the_run_and_is_named(tmp_path):
    with pytest.raises(
        EnvironmentRaisedError, match="Worker 0, walk, step 8: step raised ValueError: the track"
    ):
        train(3, spec(FailingWalk(str(tmp_path / "once"), "raise")))


def test_a_maker_that_raises_is_named():
    def make(seed):
        raise FileNotFoundError("robot.xml")

    with pytest.raises(
        EnvironmentRaisedError, match="Worker 0: making its environment raised FileNotFoundError"
    ):
        Engine(spec(make))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"worker": 2}, "runtime has no option 'worker'. Did you mean 'workers'?"),
        ({"workers": 0}, "runtime option 'workers' must be an integer >= 1, got 0"),
        ({"transport": "rya"}, "'transport' must be one of 'inline', 'processes', 'ray' or None, got 'rya'"),
        ({"timeout_s": 0}, "'timeout_s' must be a finite number > 0, got 0"),
        ({"non_finite": "ignore"}, "'non_finite' must be one of 'raise', 'quarantine', got 'ignore'"),
        ({"max_lag": 0}, "'max_lag' must be an integer >= 1"),
        ({"address": ""}, "'address' must be 'local', a Ray head's address or None, got ''"),
        ({"address": "local", "transport": "inline"}, "transport 'inline' contradicts it"),
    ],
)
def test_options_out_of_their_range_are_refused(options, words):
    with pytest.raises(ConfigError, match=words.replace("?", r"\?")):
        runtime_config(options)


def test_the_transport_follows_from_what_is_named():
    assert runtime_config().chosen_transport == "inline"
    assert runtime_config({"workers": 2}).chosen_transport == "processes"
    assert runtime_config({"workers": 2, "transport": "inline"}).chosen_transport == "inline"
    assert runtime_config({"address": "local"}).chosen_transport == "ray"


@pytest.mark.parametrize("made", [None, object()])
def test_what_makes_no_environment_is_told_what_it_lacks(made):
    words = f"make_env returned a {type(made).__name__}, which has no num_envs, meta, .* VecEnvRollouts"
    with pytest.raises(EnvironmentContractError, match=words):
        Engine(spec(lambda seed: made))
