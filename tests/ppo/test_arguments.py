"""Wrong arguments of `train` and `make_trainer`: each is refused with what to give instead."""

import re

import jax
import jax.numpy as jnp
import pytest

from dressage.envs import make
from dressage.errors import ConfigError, EnvironmentContractError
from dressage.ppo import Config, make_trainer, train
from tests.ppo.small_tasks import SMALL, Still

CONFIG = Config(**SMALL)


def trained(env, config):
    return train(env, config, jax.random.key(0))


@pytest.mark.parametrize(
    ("function", "name"), [(trained, "train"), (make_trainer, "make_trainer")], ids=["train", "make_trainer"]
)
@pytest.mark.parametrize(
    ("env", "config", "error", "text"),
    [
        (CONFIG, Still(), ConfigError, "`{}` takes the environment first and the configuration second."),
        (
            Still(),
            {"GAMMA": 0.9},
            ConfigError,
            "`{}` takes a Config, got dict. Config.from_mapping makes one from a dict.",
        ),
        (Still(), Config, ConfigError, "`{}` takes a Config, got the class Config. Config() has the"),
        (
            "pendulum",
            CONFIG,
            EnvironmentContractError,
            "must derive from BaseEnv, got str: dressage.envs.make('pendulum') makes a task by its name.",
        ),
        (
            make("safe_spread"),
            CONFIG,
            EnvironmentContractError,
            "got SafeSpread: agents that are several are trained by dressage.rl.ippo.IPPO.",
        ),
        (Still, CONFIG, EnvironmentContractError, "got the class Still: make one, Still()."),
    ],
    ids=["swapped", "dict", "class of configuration", "name", "many agents", "class of environment"],
)
def test_what_is_no_environment_or_configuration_is_refused_with_the_remedy(
    function, name, env, config, error, text
):
    with pytest.raises(error, match=re.escape(text.format(name))):
        function(env, config)


def test_a_host_task_is_refused_by_train_alone():
    task = make("gymnasium:CartPole-v1")
    with pytest.raises(
        EnvironmentContractError,
        match="got HostTask: an environment that steps in Python is trained by `make_trainer`",
    ):
        trained(task, CONFIG)
    assert make_trainer(task, CONFIG).seeds == (0,)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (0, r"takes a random key, got 0: make one by jax\.random\.key\(0\)"),
        (None, "takes a random key, got None"),
        (jnp.int32(3), r"takes a random key, got int32\[\]"),
        (jax.random.split(jax.random.key(0), 2), r"takes one random key, got keys of shape \(2,\); vmap"),
        (jax.random.split(jax.random.PRNGKey(0), 3), r"takes one random key, got keys of shape \(3, 2\)"),
    ],
)
def test_what_is_not_one_key_is_refused_with_how_to_make_one(key, text):
    with pytest.raises(ConfigError, match=text):
        train(Still(), CONFIG, key)
    with pytest.raises(ConfigError, match=text):
        jax.eval_shape(lambda: train(Still(), CONFIG, key))


@pytest.mark.parametrize("key", [jax.random.key(0), jax.random.PRNGKey(0)], ids=["typed", "raw"])
def test_keys_of_both_kinds_are_taken(key):
    assert jax.eval_shape(lambda key: train(Still(), CONFIG, key).metrics, key)["fault/field"].shape


def test_a_single_seed_is_refused_with_the_tuple_that_it_belongs_in():
    with pytest.raises(ConfigError, match=r"takes a tuple of seeds, got 3: seeds=\(3,\)\."):
        make_trainer(Still(), CONFIG, seeds=3)
