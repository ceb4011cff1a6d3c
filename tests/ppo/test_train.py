"""`train` is one pure function that can be jitted and vmapped."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from dressage.ppo import Config, make_trainer, train
from tests.ppo.conftest import SWEEP
from tests.ppo.small_tasks import SMALL, assert_same_bits, flat, params_of, row

ROWS = list(SWEEP)


@pytest.fixture(scope="module")
def other_runs(compiled):
    """Rows of the sweep trained one by one by the program that `single` compiled."""
    function, env, config = compiled

    def alone(name):
        changes, seed = SWEEP[name]
        return function(env, config.replace(**changes), jax.random.key(seed))

    return alone


def test_the_same_arguments_give_the_same_bits_and_one_program(compiled, single):
    function, env, config = compiled
    function(env, config, jax.random.key(1))  # What was compiled for other modules may be forgotten.
    programs = function._cache_size()
    again = function(env, config.replace(GAMMA=0.99), jax.random.key(0))
    assert_same_bits(again, single.result)
    assert function._cache_size() == programs


def test_equal_rows_of_a_vmapped_run_are_equal_bit_for_bit(sweep):
    assert_same_bits(row(sweep.result, ROWS.index("base")), row(sweep.result, ROWS.index("again")))


def test_different_seeds_give_different_parameters_observations_and_evaluations(sweep):
    first, second = (row(sweep.result, ROWS.index(name)) for name in ("base", "seed 1"))
    assert np.any(params_of(first) != params_of(second))
    assert np.any(first.runner_state.last_obs != second.runner_state.last_obs)
    assert np.any(first.metrics["steps"].obs[0] != second.metrics["steps"].obs[0])


@pytest.mark.parametrize("name", ["base", "seed 1", "seed 2"])
def test_seeds_trained_together_equal_seeds_trained_alone(sweep, other_runs, name):
    together = params_of(row(sweep.result, ROWS.index(name)))
    np.testing.assert_allclose(together, params_of(other_runs(name)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in SWEEP if name.isupper()])
def test_settings_swept_together_equal_settings_trained_alone(sweep, other_runs, name):
    together = params_of(row(sweep.result, ROWS.index(name)))
    np.testing.assert_allclose(together, params_of(other_runs(name)), rtol=1e-5, atol=1e-5)


def test_metrics_have_one_row_an_evaluation_and_report_the_steps_that_ran(single):
    metrics = single.result.metrics
    assert {name: values.shape for name, values in metrics.items()} == dict.fromkeys(metrics, (2,))
    np.testing.assert_array_equal(metrics["train/total_steps"], [64, 160])
    assert int(single.result.runner_state.updates) == 5
    assert {name for name in metrics if name.startswith("eval/")} == {
        "eval/total_episodes",
        "eval/unfinished_episodes",
        "eval/mean_returns",
        "eval/std_returns",
        "eval/mean_lengths",
        "eval/std_lengths",
    }


def test_train_equals_the_run_in_chunks_bit_for_bit(compiled, single):
    _, env, config = compiled
    trainer = make_trainer(env, config, seeds=(0,))
    state, _ = trainer.advance(trainer.init(), 1)
    trainer.evaluate(state)
    for updates in (1, 3):
        state, _ = trainer.advance(state, updates)
    runner = single.result.runner_state
    assert_same_bits(state.agents[0].params, runner.train_state.params)
    assert_same_bits(state.agents[0].opt_state, runner.train_state.opt_state)
    assert_same_bits(state.environment, runner.env_state)
    assert_same_bits((state.key, state.observed[0].features), (runner.rng, runner.last_obs))
    assert (trainer.updates_done(state), trainer.steps_done(state)) == (5, 160)


@pytest.mark.slow
def test_three_seeds_in_chunks_equal_the_three_alone(compiled, other_runs):
    _, env, config = compiled
    trainer = make_trainer(env, config, seeds=(0, 1, 2))
    state, metrics = trainer.advance(trainer.init(), 5)
    assert metrics["train/loss"].shape == (3,)
    for index, name in enumerate(("base", "seed 1", "seed 2")):
        one = trainer.run.seed_state(state, index).agents[0].params
        np.testing.assert_allclose(flat(one), params_of(other_runs(name)), rtol=1e-5, atol=1e-5)
    scores = trainer.evaluate(state)
    assert {name: values.shape for name, values in scores.items()} == {
        "eval/returns": (3, 3),
        "eval/lengths": (3, 3),
        "eval/finished": (3, 3),
    }
    second = trainer.policy(state, 1)
    np.testing.assert_array_equal(
        second.model["actor"]["log_std"], state.agents[0].params["params"]["actor"]["log_std"][1]
    )


def test_a_subclass_without_decorator_goes_through_jit_and_keeps_its_fields():
    class Longer(Config):
        NUM_STEPS: int = struct.field(pytree_node=False, default=3)
        BONUS: float = 0.5

    doubled = jax.jit(lambda config: config.replace(BONUS=2 * config.BONUS))(Longer())
    assert (type(doubled), doubled.NUM_STEPS, float(doubled.BONUS)) == (Longer, 3, 1.0)


def test_the_rate_swept_in_a_nested_vmap_has_both_axes(diary):
    config = Config(**SMALL | {"TOTAL_TIMESTEPS": 32, "NUM_EVAL_ENVS": 0})

    def one(rate, key):
        return train(diary, config.replace(LR=rate), key)

    keys = jax.vmap(jax.random.key)(jnp.arange(2))
    nested = jax.vmap(jax.vmap(one, in_axes=(None, 0)), in_axes=(0, None))
    shape = jax.eval_shape(nested, jnp.array([1e-3, 1e-4, 1e-5]), keys)
    assert shape.metrics["train/loss"].shape == (3, 2, 1)
    assert shape.policy.model["actor"]["log_std"].shape == (3, 2, 1)
    assert shape.act_scaling.low.shape == (1,)
