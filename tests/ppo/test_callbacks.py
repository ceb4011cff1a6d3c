"""Callbacks: what they are given, and that they arrive once and in order, whatever `train` goes through."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.ppo import Config, Diagnostics, Transition, train
from dressage.ppo.callbacks import call_in_order
from tests.ppo.conftest import SWEEP, TALKATIVE, run
from tests.ppo.small_tasks import SMALL, row

ROWS = list(SWEEP)


@pytest.fixture(scope="module")
def base(sweep):
    return row(sweep.result, ROWS.index("base"))


def test_under_vmap_the_host_is_called_once_an_evaluation_with_the_batch_axis(sweep):
    assert [list(metrics["train/total_steps"]) for _, metrics in sweep.calls] == [
        [64] * len(SWEEP),
        [160] * len(SWEEP),
    ]
    for evaluation, (_, metrics) in enumerate(sweep.calls):
        np.testing.assert_array_equal(
            metrics["train/loss"], sweep.result.metrics["train/loss"][:, evaluation]
        )


def test_the_host_callback_sees_numbers_where_the_configuration_was_traced(sweep):
    config, _ = sweep.calls[0]
    assert isinstance(config.LR, np.ndarray)
    assert config.LR[ROWS.index("LR")] == np.float32(1e-4)
    assert (config.NUM_ENVS, config.VERBOSE) == (4, False)


def test_metrics_of_a_users_callback_may_be_trees_and_come_back_in_the_result(base):
    assert isinstance(base.metrics["steps"], Transition)
    assert isinstance(base.metrics["diagnostics"], Diagnostics)


def test_diagnostics_have_the_documented_fields_and_the_values_that_metrics_name(base):
    names = [field.name for field in dataclasses.fields(Diagnostics)]
    assert names[:5] == ["total_loss", "value_loss", "policy_loss", "entropy_loss", "approxkl"]
    diagnostics = base.metrics["diagnostics"]
    assert all(getattr(diagnostics, name).shape == (2,) for name in names)
    for name, values in diagnostics.named().items():
        np.testing.assert_array_equal(values, base.metrics[name])
    parts = diagnostics.policy_loss + 0.5 * diagnostics.value_loss - 0.01 * diagnostics.entropy_loss
    np.testing.assert_allclose(diagnostics.total_loss, parts, rtol=1e-4)


def test_evaluation_steps_have_the_documented_fields_and_shapes(base):
    steps = base.metrics["steps"]
    names = [field.name for field in dataclasses.fields(Transition)]
    assert names == ["done", "action", "value", "reward", "log_prob", "obs", "info", "alive"]
    rows = (2, 5, 3)  # evaluations, max_steps, episodes
    shapes = {name: getattr(steps, name).shape for name in names if name != "info"}
    assert shapes.pop("action") == (*rows, 1)
    assert shapes.pop("obs") == (*rows, 3)
    assert set(shapes.values()) == {rows}
    assert {name: values.shape for name, values in steps.info.items()} == {
        "identity": rows,
        "returned_episode_returns": rows,
        "returned_episode_lengths": rows,
    }


def test_evaluation_steps_are_of_first_episodes_played_by_the_mode(base):
    steps = jax.tree.map(lambda leaf: np.asarray(leaf[-1]), base.metrics["steps"])  # the last evaluation
    lengths = np.minimum(3 + np.floor(4 * steps.obs[0, :, 0]), 5)
    np.testing.assert_array_equal(steps.alive.sum(0), lengths)
    np.testing.assert_array_equal(steps.done.sum(0), 1)
    for episode, length in enumerate(lengths.astype(int)):
        alive = slice(0, length)
        np.testing.assert_array_equal(steps.alive[alive, episode], True)
        assert steps.done[length - 1, episode]
        np.testing.assert_array_equal(steps.obs[alive, episode, 1], np.arange(length))
        np.testing.assert_array_equal(steps.info["identity"][alive, episode], steps.obs[alive, episode, 0])
        np.testing.assert_array_equal(steps.reward[alive, episode], 1 + np.arange(length))
        assert steps.info["returned_episode_returns"][length - 1, episode] == length * (length + 1) / 2
        assert steps.info["returned_episode_lengths"][length - 1, episode] == length
    acted = base.policy.apply_actor(steps.obs)
    np.testing.assert_allclose(steps.action, acted, atol=1e-6)
    np.testing.assert_allclose(steps.value, base.policy.value(steps.obs), rtol=1e-5, atol=1e-6)
    deviation = np.exp(base.policy.model["actor"]["log_std"][0])
    np.testing.assert_allclose(steps.log_prob, -np.log(deviation * np.sqrt(2 * np.pi)), rtol=1e-5)


def test_evaluation_means_are_those_of_the_episodes(base):
    steps, metrics = base.metrics["steps"], base.metrics
    for evaluation in range(2):
        lengths = np.asarray(steps.alive[evaluation].sum(0), float)
        returns = lengths * (lengths + 1) / 2
        assert metrics["eval/mean_returns"][evaluation] == pytest.approx(returns.mean())
        assert metrics["eval/std_returns"][evaluation] == pytest.approx(returns.std(), abs=1e-5)
        assert metrics["eval/mean_lengths"][evaluation] == pytest.approx(lengths.mean())
        assert metrics["eval/std_lengths"][evaluation] == pytest.approx(lengths.std(), abs=1e-5)


def made_by_hand(done, returns, lengths):
    done = np.array(done, bool)
    info = {"returned_episode_returns": np.array(returns), "returned_episode_lengths": np.array(lengths)}
    nothing = np.zeros(done.shape)
    return Transition(done, nothing, nothing, nothing, nothing, nothing, info)


def test_unfinished_evaluation_episodes_are_left_out_of_the_means():
    steps = made_by_hand([[0, 1, 0], [1, 0, 0]], [[1.0, 7.0, 2.0], [3.0, 9.0, 4.0]], [[1, 1, 1], [2, 2, 2]])
    metrics = {name: float(value) for name, value in steps.episode_metrics().items()}
    assert metrics == {
        "eval/total_episodes": 2,
        "eval/unfinished_episodes": 1,
        "eval/mean_returns": 5.0,
        "eval/std_returns": 2.0,
        "eval/mean_lengths": 1.5,
        "eval/std_lengths": 0.5,
    }


def test_means_over_no_finished_episode_are_nan_and_never_0():
    metrics = made_by_hand([[0, 0]], [[5.0, 6.0]], [[1, 1]]).episode_metrics()
    assert (int(metrics["eval/total_episodes"]), int(metrics["eval/unfinished_episodes"])) == (0, 2)
    for name in ("mean_returns", "std_returns", "mean_lengths", "std_lengths"):
        assert np.isnan(metrics[f"eval/{name}"])


def test_without_evaluation_the_callback_gets_none_and_its_own_metrics_print(diary):
    class Bare(Config):
        def EVAL_METRICS_JAX_CB(self, total_steps, diagnostics, eval_transitions=None):
            return {"mine": 2.0, "steps given": eval_transitions is not None}

    config = Bare(**SMALL | {"TOTAL_TIMESTEPS": 64, "NUM_EVAL_ENVS": 0, "VERBOSE": True})
    bare = run(jax.jit(train, static_argnums=0), diary, config, jax.random.key(0))
    np.testing.assert_array_equal(bare.result.metrics["mine"], [2.0, 2.0])
    np.testing.assert_array_equal(bare.result.metrics["steps given"], [False, False])
    np.testing.assert_array_equal(bare.result.metrics["train/total_steps"], [32, 64])
    assert bare.output.split() == ["steps", "32", "steps", "64"]


def test_one_line_names_steps_divergence_and_return(diary, sweep, capsys):
    _, metrics = sweep.calls[-1]
    Config().EVAL_METRICS_HOST_CB(
        {
            **row(metrics, 0),
            "train/approx_kl": 0.0123,
            "eval/mean_returns": 9.54,
            "eval/std_returns": 1.21,
            "eval/total_episodes": 3,
        }
    )
    assert capsys.readouterr().out == "steps        160 | kl 0.0123 | return 9.5 ± 1.2 (3 episodes)\n"
    Config(VERBOSE=False).EVAL_METRICS_HOST_CB(metrics)
    assert capsys.readouterr().out == ""


def test_calls_keep_their_order_through_scan_and_jit():
    seen = []

    def step(carry, number):
        call_in_order(seen.append, {"number": number, "constant": 7.0})
        return carry, None

    jax.block_until_ready(jax.jit(lambda: jax.lax.scan(step, 0, jnp.arange(20))[0])())
    jax.effects_barrier()
    assert [int(argument["number"]) for argument in seen] == list(range(20))
    assert {float(argument["constant"]) for argument in seen} == {7.0}


def test_nested_vmaps_call_once_with_the_outer_axis_first():
    seen = []

    def emit(outer, inner):
        call_in_order(seen.append, (outer, inner, 10 * outer + inner))
        return inner

    nested = jax.vmap(jax.vmap(emit, in_axes=(None, 0)), in_axes=(0, None))
    jax.block_until_ready(jax.jit(nested)(jnp.array([1, 2, 3]), jnp.array([4, 5])))
    jax.effects_barrier()
    ((outer, inner, joined),) = seen
    np.testing.assert_array_equal(outer, [[1, 1], [2, 2], [3, 3]])
    np.testing.assert_array_equal(inner, [[4, 5]] * 3)
    np.testing.assert_array_equal(joined, [[14, 15], [24, 25], [34, 35]])


@pytest.mark.slow
def test_DEBUG_prints_under_vmap_too_and_nothing_for_the_steps_that_shorter_chunks_leave_over(diary):
    changes = {"NUM_EVAL_ENVS": 0, "EVAL_FREQ": 2, "DEBUG": True, "ANNEAL_LR": False}
    config = Config(**TALKATIVE | changes)
    keys = jax.vmap(jax.random.key)(jnp.arange(2))
    both = run(jax.jit(jax.vmap(lambda key: train(diary, config, key))), keys)
    lines = [line.split("|") for line in both.output.splitlines()]
    assert [line[0].split() for line in lines] == [
        ["update", "1"],
        ["steps", "20"],  # a chunk of one update before one of two
        ["update", "2"],
        ["update", "3"],
        ["steps", "60"],
    ]
    rates = next(part for part in lines[0] if "train/learning_rate" in part)
    assert rates.split() == ["train/learning_rate", "[0.01", "0.01]"]
