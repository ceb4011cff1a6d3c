"""Runs in chunks: one program for all lengths, nothing changed by looking, and exact resume."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage import envs
from dressage.learning.checkpoints import Checkpoints
from dressage.learning.proximal import METRIC_NAMES
from dressage.learning.runs import CompiledRun
from tests.learning.tiny import group_of_one, learner, single

STEPS, COPIES, EVALUATED = 4, 3, 2
LIMIT = 5

compilations = []


@pytest.fixture(scope="module", autouse=True)
def watch_compilations():
    """Count every program that XLA compiles while these tests run."""

    def note(event, duration, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            compilations.append(duration)

    jax.monitoring.register_event_duration_secs_listener(note)
    yield
    jax.monitoring.unregister_event_duration_listener(note)


def make_run(seeds, limit=LIMIT):
    env = envs.make("pendulum", max_steps=LIMIT)
    copies = single(env, COPIES)
    groups = group_of_one(learner(copies.spec, normalize_observations=True, normalize_rewards=True))
    return CompiledRun(copies, groups, STEPS, seeds, single(env, EVALUATED), limit)


@pytest.fixture(scope="module")
def run():
    return make_run((0,))


@pytest.fixture(scope="module")
def after_six(run):
    """The state after six updates in one chunk, on the host, and the chunk's metrics."""
    state, metrics = run.advance(run.init(), 6)
    return to_host(state), metrics


def raw(leaf):
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.array(jax.random.key_data(leaf) if is_key else leaf)


def to_host(state):
    """A copy that no donation can take away; keys become their bits."""
    return jax.tree.map(raw, state)


def plain(tree):
    return [raw(leaf) for leaf in jax.tree.leaves(tree)]


def assert_bit_equal(ours, theirs):
    for mine, other in zip(plain(ours), plain(theirs), strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize("chunks", [(1, 5), (3, 3), (1, 1, 1, 1, 1, 1), (0, 6)])
def test_chunks_of_any_lengths_give_the_same_bits_by_one_program(run, after_six, chunks):
    state, taken = run.init(), 0
    for updates in chunks:
        state, _ = run.advance(state, updates)
        taken += updates
        assert run.updates_done(state) == taken
    assert_bit_equal(state, after_six[0])
    assert run._advance._cache_size() == 1


def test_metrics_of_chunks_are_means_over_their_updates(run, after_six):
    state, first = run.advance(run.init(), 2)
    _, second = run.advance(state, 4)
    whole = after_six[1]
    assert whole.keys() == {
        f"train/{name}" for name in (*METRIC_NAMES, "episodes", "episode_return", "episode_length")
    }
    assert all(values.shape == (1,) for values in whole.values())
    for name in METRIC_NAMES:
        parts = (2 * first[f"train/{name}"] + 4 * second[f"train/{name}"]) / 6
        np.testing.assert_allclose(whole[f"train/{name}"], parts, rtol=1e-4, atol=1e-6, err_msg=name)
    # Six updates are 24 steps a copy: four whole episodes of five steps, and four steps of the next.
    assert whole["train/episodes"] == [4 * COPIES]
    assert first["train/episodes"] + second["train/episodes"] == [4 * COPIES]
    assert whole["train/episode_length"] == [LIMIT]
    assert -16.3 * LIMIT < whole["train/episode_return"][0] < 0


def test_a_chunk_in_which_no_episode_ends_reports_no_return(run):
    _, metrics = run.advance(run.init(), 1)
    assert metrics["train/episodes"] == [0]
    assert np.isnan(metrics["train/episode_return"]).all()
    assert np.isnan(metrics["train/episode_length"]).all()


def test_the_state_given_is_donated(run):
    state = run.init()
    leaves = jax.tree.leaves(state.agents[0].params)
    run.advance(state, 1)
    assert all(leaf.is_deleted() for leaf in leaves)


def test_evaluation_changes_nothing_and_repeats_itself(run, after_six):
    state = run.init()
    for _ in range(3):
        state, _ = run.advance(state, 2)
        before = to_host(state)
        first, second = run.evaluate(state), run.evaluate(state)
        assert_bit_equal(state, before)
        assert_bit_equal(first, second)
    assert_bit_equal(state, after_six[0])


def test_an_evaluation_gives_every_copy_its_finished_episode(run):
    results = run.evaluate(run.init())
    assert results.keys() == {"eval/returns", "eval/lengths", "eval/finished"}
    assert all(values.shape == (1, EVALUATED) for values in results.values())
    assert results["eval/finished"].all()
    np.testing.assert_array_equal(results["eval/lengths"], [[LIMIT] * EVALUATED])
    assert len(np.unique(results["eval/returns"])) == EVALUATED, "each copy starts from a state of its own"


def test_unfinished_evaluation_episodes_are_no_returns_of_zero(run):
    results = make_run((0,), limit=LIMIT - 1).evaluate(run.init())
    assert not results["eval/finished"].any()
    assert np.isnan(results["eval/returns"]).all()


def test_without_evaluation_copies_there_is_nothing_to_report():
    env = single(envs.make("pendulum"), COPIES)
    groups = group_of_one(learner(env.spec))
    assert CompiledRun(env, groups, STEPS, (0,), None, LIMIT).evaluate(None) == {}


def test_fifty_updates_after_warm_up_compile_nothing_and_leave_nothing_on_the_device(run):
    state, _ = run.advance(run.init(), 1)
    run.evaluate(state)
    state, _ = run.advance(state, 2)
    compiled, alive = len(compilations), len(jax.live_arrays())
    assert compiled > 0, "the listener hears nothing"
    kept = []
    for updates in range(1, 10):
        state, metrics = run.advance(state, updates)
        kept.append((metrics, run.evaluate(state)))
    state, metrics = run.advance(state, 5)
    assert run.updates_done(state) == 53
    assert len(compilations) == compiled
    assert len(jax.live_arrays()) == alive
    assert all(
        type(value) is np.ndarray for metrics, results in kept for value in (metrics | results).values()
    )


def test_a_run_resumed_from_a_checkpoint_equals_the_uninterrupted_one_bit_for_bit(run, after_six, tmp_path):
    assert run.exact_resume
    state, _ = run.advance(run.init(), 2)
    Checkpoints(tmp_path).save(2, state, {"updates": 2})
    run.advance(state, 3)  # Lost with the process.
    restored, note = Checkpoints(tmp_path).restore(run.init())
    assert run.updates_done(restored) == note["updates"] == 2
    resumed, _ = run.advance(restored, 4)
    assert_bit_equal(resumed, after_six[0])
    assert run._advance._cache_size() == 1


def test_another_seed_gives_other_parameters(run, after_six):
    other, _ = run.advance(run._init(run._groups, jax.random.key(1)), 6)
    pairs = zip(plain(after_six[0].agents[0].params), plain(other.agents[0].params), strict=True)
    assert all((mine != theirs).any() for mine, theirs in pairs)


@pytest.mark.slow
def test_three_seeds_at_once_equal_three_single_runs(run):
    seeds = (0, 5, 11)
    many = make_run(seeds)
    state, metrics = many.advance(many.init(), 5)
    results = many.evaluate(state)
    assert many.updates_done(state) == 5
    for index, seed in enumerate(seeds):
        alone, own = run.advance(run._init(run._groups, jax.random.key(seed)), 5)
        for mine, theirs in zip(plain(many.seed_state(state, index)), plain(alone), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)
        for name, values in metrics.items():
            np.testing.assert_allclose(values[index], own[name][0], rtol=1e-3, atol=1e-4, err_msg=name)
        evaluated = run.evaluate(alone)
        np.testing.assert_allclose(results["eval/returns"][index], evaluated["eval/returns"][0], rtol=1e-3)
