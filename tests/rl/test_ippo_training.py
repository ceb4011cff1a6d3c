"""IPPO over a functional environment: steps, history, metrics, going on, saving, seeds and faults."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage import envs
from dressage.errors import CheckpointError, ConfigError, NonFiniteError
from dressage.learning.checkpoints import named_arrays
from dressage.rl.ippo import IPPO
from dressage.rl.parameterized_ippo import ParameterizedIPPO
from dressage.rl.results import TrainResult
from tests.rl.rl_toys import SMALL, Relay, assert_equal, largest_difference, leaves_of

ROLLOUT = 8  # Environment steps of an update: 2 copies x 4 steps.


@pytest.fixture(scope="module")
def longer():
    """Five updates in one call."""
    return IPPO(SMALL).train(Relay(), 5 * ROLLOUT)


def agents_of(result):
    return result.agent_states


def test_history_and_progress_are_those_counted_by_hand(longer):
    # 20 steps of each copy are four episodes of five steps; both copies end theirs in the same step.
    assert (longer.progress.updates, longer.progress.steps, longer.progress.episodes) == (5, 40, 8)
    assert [episode["episode"] for episode in longer.history] == list(range(8))
    for number, episode in enumerate(longer.history):
        round_, copy = divmod(number, 2)
        assert episode["env_index"] == copy
        assert (episode["start_step"], episode["end_step"]) == (10 * round_, 10 * (round_ + 1))
        assert episode["length"] == 5
        assert episode["agent_costs"] == {
            "a": 1 + 2,
            "b": 1 + 2 + 3 + 4 + 5,
        }  # `a` leaves after two steps
        assert episode["agent_returns"]["b"] == 15
        assert 19 <= episode["agent_returns"]["a"] <= 21  # 10 a step, less half of -1, 0 or 1
        assert (episode["terminated"], episode["truncated"]) == (False, True)


def test_metrics_are_each_agents_own(longer):
    assert set(longer.metrics) == {"a", "b"}
    for agent, length in (("a", 2), ("b", 5)):
        rows = longer.metrics[agent]
        assert [row["update"] for row in rows] == [1, 2, 3, 4, 5]
        assert [row["steps"] for row in rows] == [8, 16, 24, 32, 40]
        assert all(row["episode_length"] == length for row in rows if row["episodes"])
        assert sum(row["episodes"] for row in rows) == 8
        assert all(np.isnan(row["episode_return"]) for row in rows if not row["episodes"])
    # Update 2 holds steps 5 to 8 of each copy: both episodes of `b` and both of the next one of `a`.
    assert longer.metrics["a"][1]["episode_cost"] == 3
    assert longer.metrics["b"][1]["episode_cost"] == 15
    assert longer.metrics["a"][0]["loss"] != longer.metrics["b"][0]["loss"]


def test_two_calls_are_one_longer_call_bit_for_bit(longer):
    learner, env = IPPO(SMALL), Relay()
    learner.train(env, 2 * ROLLOUT)
    both = learner.train(env, 3 * ROLLOUT)
    assert_equal(both.state, longer.state)
    assert both.history == longer.history
    assert both.progress == longer.progress
    assert_equal(both.metrics, longer.metrics)


def test_a_result_goes_on_in_another_learner_from_memory_and_from_its_folder(longer, tmp_path):
    first = IPPO(SMALL).train(Relay(), 2 * ROLLOUT)
    first.save(tmp_path / "run")
    for origin in (first, tmp_path / "run", str(tmp_path / "run"), TrainResult.load(tmp_path / "run")):
        both = IPPO(SMALL, seed=9).train(Relay(), 3 * ROLLOUT, resume_from=origin)
        assert_equal(both.state, longer.state)
        assert both.history == longer.history
        assert_equal(both.metrics, longer.metrics)


def test_a_result_read_back_is_the_one_that_was_saved(longer, tmp_path):
    longer.save(tmp_path)
    read = TrainResult.load(tmp_path)
    for field in ("history", "learner", "seed", "progress", "spaces"):
        assert getattr(read, field) == getattr(longer, field), field
    assert IPPO.validate(read.config) == longer.config
    assert_equal(read.metrics, longer.metrics)
    assert_equal(named_arrays(read.agent_states), named_arrays(longer.agent_states))
    seen = np.array([[0.2, 1.0, 1.0], [0.0, 0.0, 0.0]], np.float32)
    for agent in ("a", "b"):
        for ours, theirs in zip(
            read.policies[agent].component_action_probs(seen),
            longer.policies[agent].component_action_probs(seen),
            strict=True,
        ):
            np.testing.assert_array_equal(ours, theirs)
        np.testing.assert_array_equal(read.policies[agent].value(seen), longer.policies[agent].value(seen))


def test_a_saved_result_replaces_the_one_before_it(longer, tmp_path):
    IPPO(SMALL).train(Relay(), ROLLOUT).save(tmp_path)
    longer.save(tmp_path)
    assert TrainResult.load(tmp_path).progress == longer.progress


def test_the_same_seed_gives_the_same_result_and_another_seed_another(longer):
    assert_equal(IPPO(SMALL).train(Relay(), 5 * ROLLOUT).state, longer.state)
    other = IPPO(SMALL, seed=1).train(Relay(), 5 * ROLLOUT)
    assert largest_difference(agents_of(other), agents_of(longer)) > 1e-3


def test_results_of_a_call_stay_as_they_are_when_training_goes_on():
    learner, env = IPPO(SMALL), Relay()
    first = learner.train(env, ROLLOUT)
    before = [leaf.copy() for leaf in leaves_of((first.state, first.policies["a"].params))]
    learner.train(env, ROLLOUT)
    for one, other in zip(before, leaves_of((first.state, first.policies["a"].params)), strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(first.metrics["a"]) == 1


def test_callbacks_see_every_update_and_change_nothing(longer):
    events = []
    result = IPPO(SMALL).train(Relay(), 5 * ROLLOUT, callbacks=[events.append])
    assert_equal(result.state, longer.state)
    assert [event.progress.steps for event in events] == [8, 16, 24, 32, 40]
    assert_equal([event.metrics["a"] for event in events], longer.metrics["a"])
    assert [episode for event in events for episode in event.episodes] == longer.history
    assert_equal(events[-1].result().state, longer.state)


def test_a_callback_stops_training_and_the_others_still_hear_of_that_update():
    heard = []
    callbacks = [
        lambda event: event.progress.updates == 2,
        lambda event: heard.append(event.progress.updates),
    ]
    learner, env = IPPO(SMALL), Relay()
    assert learner.train(env, 5 * ROLLOUT, callbacks=callbacks).progress.updates == 2
    assert heard == [1, 2]
    assert learner.train(env, ROLLOUT).progress.updates == 3


def test_exactly_the_steps_asked_for_are_taken_and_the_next_call_goes_on_behind_them():
    learner, env = IPPO(SMALL), Relay()
    result = learner.train(env, ROLLOUT + 5)  # Three more steps, in the last of which one copy rests.
    assert (result.progress.updates, result.progress.steps) == (2, 13)
    assert int(jnp.sum(result.state.environment.length)) == 2 + 1  # Of the second episodes.
    assert [(one["start_step"], one["end_step"]) for one in result.history] == [(0, 10), (0, 10)]
    result = learner.train(env, ROLLOUT)
    # The copy that rested ends its second episode a row later than the other.
    assert [(one["env_index"], one["start_step"], one["end_step"]) for one in result.history[2:]] == [
        (0, 10, 19),
        (1, 10, 21),
    ]
    assert [one["length"] for one in result.history] == [5, 5, 5, 5]


def test_no_steps_give_the_untrained_policies():
    result = IPPO(SMALL).train(Relay(), 0)
    assert result.progress.updates == 0 and result.history == [] and result.metrics == {"a": [], "b": []}
    assert Relay().action_space(None, "a").to_gymnasium().contains(int(result.policies["a"].act(np.zeros(3))))


@pytest.mark.parametrize("bad", [1000.5, float("nan"), float("inf"), -5, True, "1000", None])
def test_a_step_count_that_is_none_is_refused_by_name(bad):
    for call in (
        lambda: IPPO(SMALL).train(Relay(), bad),
        lambda: IPPO(SMALL).train_seeds(Relay(), bad, (0, 1)),
    ):
        with pytest.raises(ConfigError, match="needs total_timesteps as a whole number >= 0, got"):
            call()


def test_a_step_count_may_be_a_whole_float(longer):
    assert_equal(IPPO(SMALL).train(Relay(), 4e1).state, longer.state)


@pytest.mark.parametrize("bad", [-1, 2**32, 0.5, True, "7", None])
def test_a_seed_that_is_none_is_refused(bad):
    with pytest.raises(ConfigError, match=r"IPPO needs a seed in \[0, 4294967295\], got"):
        IPPO(SMALL, seed=bad)


def test_the_history_keeps_its_latest_episodes(longer):
    for limit in (0, 3):
        kept = IPPO({**SMALL, "history_limit": limit}).train(Relay(), 5 * ROLLOUT)
        assert kept.history == longer.history[len(longer.history) - limit :]
        assert kept.progress.episodes == 8


def test_evaluation_changes_nothing_and_counts_whole_episodes(longer):
    learner, env = IPPO(SMALL), Relay()
    learner.train(env, 5 * ROLLOUT)
    played = learner.evaluate(env, 3)
    assert_equal(learner.train(env, 0).state, longer.state)
    np.testing.assert_array_equal(played["a"]["lengths"], [2, 2, 2])
    np.testing.assert_array_equal(played["b"]["lengths"], [5, 5, 5])
    np.testing.assert_array_equal(played["b"]["returns"], [15, 15, 15])
    np.testing.assert_array_equal(played["a"]["costs"], [3, 3, 3])
    assert played["a"]["finished"].all()


def test_evaluation_needs_training_and_a_number_of_episodes():
    learner, env = IPPO(SMALL), Relay()
    with pytest.raises(ConfigError, match="has not been trained on this environment yet: call train first"):
        learner.evaluate(env, 2)
    with pytest.raises(ConfigError, match="IPPO.evaluate needs episodes >= 1, got 0"):
        learner.evaluate(env, 0)


def test_warm_training_compiles_nothing():
    learner, env = IPPO(SMALL), Relay()
    learner.train(env, ROLLOUT)
    learner.train(env, ROLLOUT)
    compiled = []

    def note(event, seconds, **labels):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(note)
    try:
        jax.jit(lambda x: x + 3.25)(1.0)
        assert compiled, "the listener hears nothing"
        compiled.clear()
        learner.train(env, 30 * ROLLOUT)
        learner.train(env, ROLLOUT, callbacks=[lambda event: None])
        IPPO(SMALL, seed=4).train(Relay(), 2 * ROLLOUT)  # an equal environment, another learner
        IPPO({**SMALL, "gamma": 0.5, "learning_rate": 1e-2}).train(Relay(), ROLLOUT)
        assert compiled == []
    finally:
        jax.monitoring.unregister_event_duration_listener(note)


def spoil(learner, field, copy, step):
    """Have a step of one copy's open episode spoil a field."""
    state = learner._training.state
    inner = state.environment.inner
    spoiled = dataclasses.replace(
        inner,
        spoiled=inner.spoiled.at[copy].set(field),
        spoiled_at=inner.spoiled_at.at[copy].set(step),
    )
    learner._training.state = state.replace(environment=dataclasses.replace(state.environment, inner=spoiled))


@pytest.mark.parametrize(
    ("field", "words"),
    [(0, "final observation"), (1, "reward"), (2, "cost")],
    ids=["observation", "reward", "cost"],
)
def test_a_number_that_is_not_finite_stops_training_before_it_is_learned_from(field, words):
    learner, env = IPPO(SMALL), Relay()
    before = learner.train(env, ROLLOUT + 5)  # Three steps of the shorter update come on top of four.
    spoil(learner, field, copy=0, step=3)
    with pytest.raises(
        NonFiniteError,
        match=rf"The {words} of agent 'b' is not finite: environment copy 0, step 7 of that copy",
    ):
        learner.train(env, 2 * ROLLOUT)
    after = learner.train(env, 0)
    assert_equal(agents_of(after), agents_of(before))
    assert after.progress == dataclasses.replace(before.progress, episode_starts=(13, 13))
    later = learner.train(env, ROLLOUT)
    assert later.progress.steps == 21
    assert largest_difference(agents_of(later), agents_of(before)) > 0
    assert all(np.isfinite(leaf).all() for leaf in leaves_of(agents_of(later)))


def test_updates_before_the_one_that_met_a_bad_number_count():
    learner, env = IPPO(SMALL), Relay()
    good = IPPO(SMALL).train(Relay(), ROLLOUT)
    learner.train(env, 0)
    spoil(learner, field=1, copy=0, step=5)
    with pytest.raises(NonFiniteError, match="environment copy 0, step 4 of that copy"):
        learner.train(env, 5 * ROLLOUT)
    after = learner.train(env, 0)
    assert (after.progress.updates, after.progress.steps) == (1, 8)
    assert_equal(agents_of(after), agents_of(good))
    assert_equal(after.metrics, good.metrics)


def test_what_does_not_fit_is_not_gone_on_from(longer, tmp_path):
    with pytest.raises(ConfigError, match="was trained by IPPO; ParameterizedIPPO cannot go on from it"):
        ParameterizedIPPO(SMALL).train(Relay(), 8, resume_from=longer)
    with pytest.raises(ConfigError, match="agent 'a' has observations in .* there and no part in"):
        IPPO(SMALL).train(envs.make("cartpole"), 8, resume_from=longer)
    wider = {**SMALL, "network": {"hidden_sizes": (5,)}}
    with pytest.raises(
        ConfigError, match=r"its networks are .*hidden_sizes=\(4,\).*these options make .*\(5,\)"
    ):
        IPPO(wider).train(Relay(), 8, resume_from=longer)
    with pytest.raises(
        ConfigError, match="What is to be resumed does not fit: it lacks .*discounted_returns"
    ):
        IPPO({**SMALL, "normalize_rewards": True}).train(Relay(), 8, resume_from=longer)
    with pytest.raises(CheckpointError, match="the folder does not exist"):
        IPPO(SMALL).train(Relay(), 8, resume_from=tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="There is no complete checkpoint"):
        IPPO(SMALL).train(Relay(), 8, resume_from=tmp_path)


def test_a_folder_cut_short_or_altered_is_refused(longer, tmp_path):
    longer.save(tmp_path)
    content = next(path for path in tmp_path.rglob("content/*") if path.is_file())
    text = content.read_text()
    told = json.loads(text)
    assert told["note"]["learner"] == "IPPO"
    content.write_text(text.replace('"seed": 0', '"seed": 1'))
    with pytest.raises(CheckpointError, match="is damaged: its description differs from its checksum"):
        TrainResult.load(tmp_path)
    content.write_text(text[: len(text) // 2])
    with pytest.raises(CheckpointError, match="is incomplete: its description cannot be read"):
        TrainResult.load(tmp_path)


def test_another_learning_rate_counts_when_training_goes_on(longer):
    slower = IPPO({**SMALL, "learning_rate": 1e-5}).train(Relay(), ROLLOUT, resume_from=longer)
    assert slower.metrics["a"][-1]["learning_rate"] == pytest.approx(1e-5)


@pytest.mark.slow
def test_several_seeds_at_once_are_the_single_runs(longer):
    results = IPPO(SMALL).train_seeds(Relay(), 5 * ROLLOUT, (0, 7))
    alone = (longer, IPPO(SMALL, seed=7).train(Relay(), 5 * ROLLOUT))
    for ours, theirs in zip(results, alone, strict=True):
        assert ours.seed == theirs.seed
        assert largest_difference(agents_of(ours), agents_of(theirs)) < 1e-5
        assert ours.history == theirs.history
        assert ours.progress == theirs.progress
    assert largest_difference(agents_of(results[0]), agents_of(results[1])) > 1e-3


def test_seeds_must_be_there():
    with pytest.raises(ConfigError, match="IPPO.train_seeds needs at least one seed, got none"):
        IPPO(SMALL).train_seeds(Relay(), 8, ())
