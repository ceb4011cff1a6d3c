"""What is wrong with an environment is named, and never reaches the parameters."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.envs.spaces import Box
from dressage.errors import EnvironmentContractError, NonFiniteError
from dressage.learning.faults import latch_fault, raise_fault
from dressage.learning.records import FAULT_FIELDS, Fault
from dressage.ppo import Config, make_trainer, train
from tests.ppo.small_tasks import SMALL, Still, collect, experience_of, flat

FEW = SMALL | {"TOTAL_TIMESTEPS": 160, "EVAL_FREQ": 5, "NUM_EVAL_ENVS": 1}


class Valued(Config):
    """Reports the critic's value of the one observation that there is."""

    def EVAL_METRICS_JAX_CB(self, total_steps, diagnostics, eval_transitions=None):
        return {"value": eval_transitions.value[0, 0]}


@pytest.fixture(scope="module")
def broken():
    """Five updates of 8 steps; the reward of step 20, in the third rollout, is NaN."""
    task = Still(max_steps=50, broken_at=20)
    return jax.jit(train, static_argnums=0)(task, Valued(**FEW), jax.random.key(0))


def test_pure_training_reports_the_first_fault_in_its_metrics(broken):
    metrics = broken.metrics
    reward = FAULT_FIELDS.index("reward") + 1
    np.testing.assert_array_equal(metrics["fault/field"], [0, 0, reward, reward, reward])
    np.testing.assert_array_equal(metrics["fault/step"], [0, 0, 20, 20, 20])
    np.testing.assert_array_equal(metrics["fault/environment"], [0, 0, 0, 0, 0])
    assert int(broken.runner_state.fault.step) == 20


def test_parameters_are_frozen_from_the_broken_rollout_on_and_finite(broken):
    values = np.asarray(broken.metrics["value"])
    assert len(np.unique(values[:2])) == 2
    np.testing.assert_array_equal(values[2:], values[1])
    state = broken.runner_state
    assert all(
        np.isfinite(leaf).all()
        for leaf in jax.tree.leaves((state.train_state.params, state.train_state.opt_state))
    )
    assert int(state.train_state.step) == 2 * 2 * 3


def test_a_run_in_chunks_raises_naming_field_copy_and_step():
    trainer = make_trainer(
        Still(max_steps=50, broken_at=11), Config(**FEW | {"NORMALIZE_ENV": True}), seeds=(3,)
    )
    state, _ = trainer.advance(trainer.init(), 1)
    with pytest.raises(
        NonFiniteError, match=r"The reward of agent 'agent' is not finite: environment copy 0, step 11"
    ):
        trainer.advance(state, 2)


@pytest.fixture(scope="module")
def sound_rollout(diary):
    return experience_of(collect(diary, Config(**SMALL))[2])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("field", [field for field in FAULT_FIELDS if field != "action mask"])
def test_every_field_is_watched_and_named(sound_rollout, field, value):
    def spoil(array):
        return array.at[(5, 2)].set(value)

    rollout = sound_rollout
    outcome, observed = rollout.outcome, rollout.observed
    spoiled = {
        "observation": rollout.replace(observed=observed.replace(features=spoil(observed.features))),
        "final observation": rollout.replace(
            outcome=outcome.replace(final_features=spoil(outcome.final_features))
        ),
        "reward": rollout.replace(outcome=outcome.replace(rewards=spoil(outcome.rewards))),
        "action": rollout.replace(actions=spoil(rollout.actions)),
        "cost": rollout.replace(outcome=outcome.replace(costs=spoil(jnp.zeros_like(outcome.rewards)))),
    }[field]
    fault = latch_fault(Fault.none(), (spoiled,), jnp.int32(10))
    # 10 updates of 8 steps came before.
    with pytest.raises(NonFiniteError, match=rf"The {field} of agent 'walker' .* copy 2, step 85 of"):
        raise_fault(fault, (("walker",),))
    assert int(latch_fault(fault, (sound_rollout,), jnp.int32(11)).step) == 85  # the first one stays


def test_a_sound_rollout_latches_nothing(sound_rollout):
    fault = latch_fault(Fault.none(), (sound_rollout,), jnp.int32(1))
    assert flat(fault).sum() == 0
    raise_fault(fault, (("walker",),))


@dataclass(frozen=True)
class Careless(Still):
    """Breaks one promise of an environment."""

    fault: str = ""

    def reset(self, rng):
        state, obs, info = super().reset(rng)
        if self.fault == "reset shape":
            return state, jnp.ones(3), info
        return (state, obs) if self.fault == "reset items" else (state, obs, info)

    def step(self, state, action):
        state, obs, reward, terminated, truncated, info = super().step(state, action)
        match self.fault:
            case "step shape":
                obs = jnp.ones((2, 1))
            case "dtype":
                obs = jnp.ones(2, jnp.int32)
            case "reward":
                reward = jnp.ones(1)
            case "terminated":
                terminated = 0.0
            case "state":
                state = state.astype(jnp.float32)
        return state, obs, reward, terminated, truncated, info

    def observation_space(self, state):
        return Box(-np.inf, np.inf, (2,))


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("reset shape", r"Careless\.reset returned an observation of shape \(3,\); its space has \(2,\)"),
        ("reset items", r"Careless\.reset must return \(state, observation, info\), got 2 items"),
        ("step shape", r"Careless\.step returned an observation of shape \(2, 1\); its space has \(2,\)"),
        ("dtype", r"Careless\.step returned an observation of dtype int32; its space has float32"),
        ("reward", r"Careless\.step must return a real scalar as reward, got float32\[1\]"),
        ("terminated", r"Careless\.step must return a boolean scalar as terminated, got float"),
        (
            "state",
            r"Careless\.step must keep the state's shapes and dtypes: state is int32\[\] after reset "
            "and float32",
        ),
    ],
)
def test_a_broken_contract_is_named_before_anything_compiles(fault, text):
    with pytest.raises(EnvironmentContractError, match=text):
        train(Careless(fault=fault), Config(**SMALL), jax.random.key(0))
    with pytest.raises(EnvironmentContractError, match=text):
        make_trainer(Careless(fault=fault), Config(**SMALL))


@pytest.mark.parametrize("limit", [0, 2.5, None])
def test_an_impossible_time_limit_is_named(limit):
    with pytest.raises(EnvironmentContractError, match="Still.max_steps must be an integer >= 1"):
        train(Still(max_steps=limit), Config(**SMALL), jax.random.key(0))


def test_something_else_than_an_environment_is_named():
    with pytest.raises(EnvironmentContractError, match="must derive from BaseEnv, got str"):
        train("pendulum", Config(**SMALL), jax.random.key(0))
