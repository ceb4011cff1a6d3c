"""PPO's configuration: defaults, types, ranges, and the texts that refuse a wrong one."""

import copy
import dataclasses
import inspect
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.envs import make
from dressage.errors import ConfigError
from dressage.ppo import OPTIONS, Config, Diagnostics, train
from dressage.ppo.config import FLOATS
from tests.ppo.small_tasks import SMALL
from tests.seed_defaults import SEED_DEFAULTS

INTEGERS = [option.name for option in OPTIONS if option.kind == "integer"]
BOOLEANS = [option.name for option in OPTIONS if option.kind == "boolean"]


def test_fields_stand_in_the_promised_order_with_the_promised_defaults():
    fields = dataclasses.fields(Config)
    assert [field.name for field in fields][: len(SEED_DEFAULTS)] == list(SEED_DEFAULTS)
    assert {field.name: field.default for field in fields} == SEED_DEFAULTS


def test_every_field_is_declared_once_with_its_default_and_a_meaning():
    assert {option.name: option.default for option in OPTIONS} == SEED_DEFAULTS
    assert all(option.help.endswith(".") for option in OPTIONS)


def test_floats_are_leaves_and_nothing_else_is():
    assert sorted(FLOATS) == sorted(name for name, value in SEED_DEFAULTS.items() if isinstance(value, float))
    assert sorted(jax.tree.leaves(Config())) == sorted(SEED_DEFAULTS[name] for name in FLOATS)


@pytest.mark.parametrize("name", INTEGERS)
def test_a_float_that_is_whole_counts_as_an_integer(name):
    value = getattr(Config(**{name: 4.0}).validate(), name)
    assert (value, type(value)) == (4, int)


def test_a_million_may_be_written_as_1e6():
    assert Config(TOTAL_TIMESTEPS=1e6).validate().TOTAL_TIMESTEPS == 1_000_000


def test_a_budget_beyond_31_bits_does_not_wrap():
    config = Config(TOTAL_TIMESTEPS=3e9, NUM_ENVS=1000, NUM_STEPS=1000).validate()
    assert (config.NUM_UPDATES, config.NUM_TIMESTEPS) == (3000, 3_000_000_000)


@pytest.mark.parametrize("value", [True, "4", 2.5, float("nan"), -5, None, [4]])
@pytest.mark.parametrize("name", INTEGERS)
def test_what_is_no_whole_number_in_range_is_refused_by_name(name, value):
    least = next(option.minimum for option in OPTIONS if option.name == name)
    with pytest.raises(ConfigError, match=f"PPO option '{name}' must be an integer >= {least:g}, got "):
        Config(**{name: value}).validate()


@pytest.mark.parametrize("value", [True, "0.1", float("nan"), float("inf"), -0.1, None])
@pytest.mark.parametrize("name", FLOATS)
def test_what_is_no_number_in_range_is_refused_by_name(name, value):
    with pytest.raises(ConfigError, match=f"PPO option '{name}' must be a finite number >=? 0"):
        Config(**{name: value}).validate()


@pytest.mark.parametrize("value", [1, 0, "yes", None])
@pytest.mark.parametrize("name", BOOLEANS)
def test_what_is_neither_true_nor_false_is_refused_by_name(name, value):
    with pytest.raises(ConfigError, match=f"PPO option '{name}' must be True or False, got {value!r}"):
        Config(**{name: value}).validate()


@pytest.mark.parametrize("name", ["GAMMA", "GAE_LAMBDA"])
def test_a_discount_above_one_is_refused_with_its_range(name):
    with pytest.raises(ConfigError, match=f"'{name}' must be a finite number >= 0 and <= 1, got 1.2"):
        Config(**{name: 1.2}).validate()


@pytest.mark.parametrize("name", ["LR", "CLIP_EPS", "MAX_GRAD_NORM"])
def test_zero_is_refused_where_nothing_would_be_learned(name):
    with pytest.raises(ConfigError, match=f"'{name}' must be a finite number > 0, got 0"):
        Config(**{name: 0}).validate()


@pytest.mark.parametrize("name", ["KERNEL_INIT_TYPE", "HIDDEN_ACTIVATION"])
def test_an_unknown_choice_is_refused_with_the_known_ones(name):
    choices = next(option.choices for option in OPTIONS if option.name == name)
    with pytest.raises(ConfigError, match=f"'{name}' must be one of .*{choices[-1]}.*, got 'tahn'"):
        Config(**{name: "tahn"}).validate()


def test_more_minibatches_than_samples_are_refused_with_the_number_of_samples():
    with pytest.raises(ConfigError, match="'NUM_MINIBATCHES' must be at most .* = 32 samples, got 33"):
        Config(NUM_ENVS=4, NUM_STEPS=8, NUM_MINIBATCHES=33).validate()


def test_a_mapping_gives_a_checked_configuration():
    config = Config.from_mapping({"TOTAL_TIMESTEPS": 2e5, "GAMMA": 1})
    assert (config.TOTAL_TIMESTEPS, config.GAMMA, config.LR) == (200_000, 1.0, 5e-4)
    with pytest.raises(ConfigError, match="'GAMMA' must be"):
        Config.from_mapping({"GAMMA": 2.0})


def test_unknown_names_are_all_refused_each_with_the_nearest():
    with pytest.raises(
        ConfigError, match=r"no option 'GAMA'\. Did you mean 'GAMMA'\?.*'lr'\. Did you mean 'LR'\?"
    ):
        Config.from_mapping({"GAMA": 0.9, "lr": 1e-3})
    with pytest.raises(ConfigError, match=r"no option 'zzz'\. Known: ANNEAL_LR, CLIP_EPS"):
        Config.from_mapping({"zzz": 1})


def test_making_a_configuration_checks_nothing_so_that_trees_of_it_can_hold_anything():
    assert Config(GAMMA=object, NUM_ENVS=-1).NUM_ENVS == -1
    assert jax.tree.map(lambda leaf: leaf > 0, Config()).LR is True
    doubled = jax.jit(lambda config: jax.tree.map(lambda leaf: 2 * leaf, config))(Config(GAMMA=0.25))
    assert float(doubled.GAMMA) == 0.5


def test_checks_pass_over_traced_numbers():
    seen = jax.jit(lambda rate: Config(LR=rate).validate().LR * 1)(-1.0)
    assert float(seen) == -1.0


def test_concrete_arrays_are_checked_entry_by_entry():
    assert Config(GAMMA=jnp.array([0.9, 0.99]), LR=np.float32(1e-3)).validate().LR == np.float32(1e-3)
    with pytest.raises(ConfigError, match="'GAMMA' must be .* got 1.5"):
        Config(GAMMA=jnp.array([0.9, 1.5])).validate()
    with pytest.raises(ConfigError, match="'NUM_ENVS' must be an integer >= 1, got 2.5"):
        Config(NUM_ENVS=jnp.array(2.5)).validate()
    assert Config(NUM_ENVS=jnp.array(3)).validate().NUM_ENVS == 3


@pytest.mark.parametrize("name", ["NUM_ENVS", "TOTAL_TIMESTEPS", "SQUASH", "HIDDEN_ACTIVATION"])
def test_a_traced_value_of_a_static_field_is_refused_by_name(name):
    env = make("cartpole")
    with pytest.raises(
        ConfigError, match=f"'{name}' is static and cannot be traced or vmapped; traced: LR, GAMMA"
    ):
        jax.vmap(lambda value: train(env, Config(**{name: value}), jax.random.key(0)).metrics)(
            jnp.arange(1, 3)
        )


def test_an_array_where_a_number_belongs_is_refused_with_the_way_to_sweep():
    config = Config(**SMALL).replace(LR=jnp.array([1e-3, 1e-4]))
    with pytest.raises(ConfigError, match=r"'LR' must be a single number in `train`, got shape \(2,\); vmap"):
        train(make("cartpole"), config, jax.random.key(0))


def test_a_wrong_value_is_refused_by_train_before_anything_is_traced():
    class Untouched:
        """No environment at all: reaching it would raise something else."""

    with pytest.raises(ConfigError, match="'NUM_ENVS' must be an integer >= 1, got 0"):
        train(Untouched(), Config(NUM_ENVS=0), jax.random.key(0))


@pytest.mark.parametrize(
    ("asked", "updates", "steps"),
    [(1, 1, 32), (32, 1, 32), (33, 2, 64), (160, 5, 160), (1e6, 31250, 1_000_000)],
)
def test_never_fewer_steps_than_asked_will_run(asked, updates, steps):
    config = Config(NUM_ENVS=4, NUM_STEPS=8, TOTAL_TIMESTEPS=asked).validate()
    assert (config.NUM_UPDATES, config.NUM_TIMESTEPS) == (updates, steps)


@pytest.mark.parametrize(
    ("frequency", "updates", "after"),
    [(1, 5, (5,)), (2, 5, (2, 5)), (4, 10, (2, 5, 7, 10)), (100, 3, (1, 2, 3))],
)
def test_evaluations_are_spread_evenly_and_the_last_ends_the_run(frequency, updates, after):
    config = Config(NUM_ENVS=1, NUM_STEPS=1, TOTAL_TIMESTEPS=updates, EVAL_FREQ=frequency, NUM_MINIBATCHES=1)
    assert config.updates_at_evaluations() == after
    assert len(after) == config.NUM_EVALS


def test_the_largest_minibatch_of_32_samples_in_3_parts_has_11():
    assert Config(NUM_ENVS=4, NUM_STEPS=8, NUM_MINIBATCHES=3).MINIBATCH_SIZE == 11


@pytest.mark.parametrize(
    "given", [lambda: Config(GAMA=0.9), lambda: Config().replace(GAMA=0.9), lambda: Config(GAMMA=0.9, GAMA=1)]
)
def test_the_constructor_and_replace_refuse_an_unknown_name_with_the_nearest(given):
    with pytest.raises(ConfigError, match=r"^PPO has no option 'GAMA'\. Did you mean 'GAMMA'\?$"):
        given()


def test_a_field_of_another_record_that_does_not_exist_is_refused_by_its_name():
    with pytest.raises(ConfigError, match=r"^Diagnostics has no option 'aproxkl'\. Did you mean 'approxkl'"):
        Diagnostics(aproxkl=0.0)


def test_a_subclass_may_have_fields_and_a_constructor_of_its_own():
    class Wider(Config):
        weight: float = 2.0

    class Named(Config):
        def __init__(self, gamma):
            Config.__init__(self, GAMMA=gamma)

    assert Wider(weight=3.0).replace(GAMMA=0.5).weight == 3.0
    assert Named(gamma=0.5).GAMMA == 0.5
    with pytest.raises(ConfigError, match=r"PPO has no option 'wieght'\. Did you mean 'weight'\?"):
        Wider(wieght=3.0)
    assert float(jax.jit(lambda config: config.weight)(Wider())) == 2.0


def test_the_constructors_signature_and_copies_of_a_configuration_are_as_before():
    assert list(inspect.signature(Config).parameters) == list(SEED_DEFAULTS)
    assert pickle.loads(pickle.dumps(copy.deepcopy(Config(GAMMA=0.5)))) == Config(GAMMA=0.5)


def test_a_misspelled_choice_gets_the_nearest_one():
    with pytest.raises(ConfigError, match=r"got 'rleu'\. Did you mean 'relu'\?$"):
        Config(HIDDEN_ACTIVATION="rleu").validate()
    with pytest.raises(ConfigError, match=r"got 'zzz'\.$"):
        Config(HIDDEN_ACTIVATION="zzz").validate()
