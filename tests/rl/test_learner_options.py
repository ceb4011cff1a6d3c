"""Every option of every learner: misspelled, out of range, and whether it changes anything."""

import importlib
import inspect
import pkgutil
import re

import numpy as np
import pytest

import dressage.rl
from dressage.errors import ConfigError
from dressage.rl.algorithm import Algorithm
from dressage.rl.ippo import IPPO, validate_ippo_config
from dressage.rl.parameterized_ippo import validate_parameterized_ippo_config
from tests.rl.rl_toys import SMALL, Relay, largest_difference, leaves_of


def all_learners():
    names = [found.name for found in pkgutil.iter_modules(dressage.rl.__path__)]
    modules = [importlib.import_module(f"dressage.rl.{name}") for name in names]
    classes = {one for module in modules for _, one in inspect.getmembers(module, inspect.isclass)}
    learners = [one for one in classes if issubclass(one, Algorithm) and not inspect.isabstract(one)]
    return sorted(learners, key=lambda one: one.NAME)


LEARNERS = all_learners()
OPTIONS = [
    pytest.param(learner, option, id=f"{learner.NAME}-{option.name}")
    for learner in LEARNERS
    for option in learner.OPTIONS
]


def nested(name, value):
    outer, _, inner = name.rpartition(".")
    return {outer: {inner: value}} if outer else {name: value}


def misspelled(name):
    """Return slips of a name: a letter lacking, two changed over, another case, a dash."""
    stem, middle = name.rpartition(".")[2], len(name.rpartition(".")[2]) // 2
    slips = {
        stem[:middle] + stem[middle + 1 :],
        stem[: middle - 1] + stem[middle] + stem[middle - 1] + stem[middle + 1 :],
        stem.capitalize(),
        stem.replace("_", "-"),
    }
    return sorted(slips - {stem})


def test_all_learners_are_found():
    assert {"IPPO", "ParameterizedIPPO"} <= {learner.NAME for learner in LEARNERS}


@pytest.mark.parametrize(("learner", "option"), OPTIONS)
def test_a_misspelled_option_is_refused_with_the_right_one(learner, option):
    known = {one.name for one in learner.OPTIONS}
    for slip in misspelled(option.name):
        path = (option.name.rpartition(".")[0] + "." + slip).lstrip(".")
        if path in known:
            continue
        words = f"{learner.NAME} has no option '{path}'. Did you mean '{option.name}'"
        with pytest.raises(ConfigError, match=words):
            learner.validate(nested(path, 1))


# The kinds that only learners with a limit have are tried where those are tested.
KINDS = ("integer", "number", "boolean", "choice", "integers")


def bad_values(option):
    wrong = {
        "integer": [2.5, "4", True, np.nan, option.minimum - 1],
        "number": ["0.1", True, np.nan, np.inf, option.minimum - 1 if np.isfinite(option.minimum) else "x"],
        "boolean": [1, "yes", None],
        "choice": ["nonsense", 3],
        "integers": [4, "44", (4, 0), (4, 2.5), (True,)],
    }[option.kind]
    if option.open_minimum:
        wrong = [*wrong, option.minimum]
    if np.isfinite(option.maximum):
        wrong = [*wrong, option.maximum + 0.2]
    return wrong if option.optional else [*wrong, None]


@pytest.mark.parametrize(("learner", "option"), [one for one in OPTIONS if one.values[1].kind in KINDS])
def test_a_value_that_is_not_legal_is_refused_with_name_value_and_range(learner, option):
    for value in bad_values(option):
        with pytest.raises(ConfigError) as refused:
            learner.validate(nested(option.name, value))
        text = str(refused.value)
        assert repr(option.name) in text and repr(value) in text and option.allowed() in text


def test_several_slips_are_all_named_and_nothing_near_gets_no_silly_suggestion():
    with pytest.raises(ConfigError, match="no option 'gama'. Did you mean 'gamma'.* 'lamda'"):
        validate_ippo_config({"gama": 0.99, "lamda": 0.9})
    with pytest.raises(ConfigError, match="IPPO has no option 'zzz'. Known: adaptive_kl, "):
        validate_ippo_config({"zzz": 1})
    with pytest.raises(ConfigError, match="'network' must be a mapping of options, got 4"):
        validate_ippo_config({"network": 4})
    with pytest.raises(ConfigError, match="IPPO takes a mapping of options, got list"):
        validate_ippo_config([])


def test_validation_gives_every_option_and_changes_no_input():
    given = {"gamma": 1, "network": {"hidden_sizes": [3]}}
    checked = validate_ippo_config(given)
    assert given == {"gamma": 1, "network": {"hidden_sizes": [3]}}
    assert checked["gamma"] == 1.0 and checked["network"] == {"hidden_sizes": (3,), "activation": "tanh"}
    assert validate_ippo_config({"network.hidden_sizes": [3]})["network"] == checked["network"]
    assert validate_ippo_config(None) == validate_ippo_config({})
    assert validate_ippo_config(None) is not validate_ippo_config(None)
    assert validate_parameterized_ippo_config()["num_envs"] == 8
    assert validate_ippo_config({"target_kl": None})["target_kl"] is None


def test_options_that_contradict_one_another_are_refused():
    with pytest.raises(ConfigError, match="'anneal_learning_rate' and 'adaptive_kl' contradict each other"):
        IPPO({"anneal_learning_rate": True, "adaptive_kl": 0.01})
    with pytest.raises(ConfigError, match="'recurrent' needs at least one hidden layer"):
        IPPO({"recurrent": True, "network": {"hidden_sizes": []}})


LIVELY = {**SMALL, "learning_rate": 0.05}

# Numbers that are traced cost no compilation; what changes the program is slow.
TRACED = {
    "gamma": 0.5,
    "gae_lambda": 0.1,
    "learning_rate": 0.01,
    "clip_eps": 0.01,
    "value_coef": 0.1,
    "entropy_coef": 0.5,
    "max_grad_norm": 0.01,
}
STATIC = {
    "num_envs": 3,
    "rollout_length": 5,
    "learning_epochs": 3,
    "mini_batches": 3,
    "anneal_learning_rate": True,
    "clip_value_loss": False,
    "target_kl": 1e-6,
    "adaptive_kl": 1e-6,
    "share_parameters": True,
    "normalize_observations": True,
    "normalize_rewards": True,
    "recurrent": True,
    "network.hidden_sizes": (5,),
    "network.activation": "relu",
}
# What these do is another test's: tests/rl/test_ippo_training.py and tests/rl/test_ippo_on_host.py.
ELSEWHERE = {"history_limit", "num_workers", "worker_timeout"}


@pytest.fixture(scope="module")
def ordinary():
    return IPPO(LIVELY).train(Relay(), 16)


def test_every_option_is_tried():
    assert {*TRACED, *STATIC, *ELSEWHERE} == {option.name for option in IPPO.OPTIONS}


@pytest.mark.parametrize(
    ("name", "value"),
    [*TRACED.items(), *(pytest.param(*item, marks=pytest.mark.slow) for item in STATIC.items())],
)
def test_every_option_changes_what_is_learned(ordinary, name, value):
    outer, _, inner = name.rpartition(".")
    changed = {outer: {**LIVELY[outer], inner: value}} if outer else {name: value}
    result = IPPO({**LIVELY, **changed}).train(Relay(), 16)
    ours, theirs = ([one.agent_states[agent].params for agent in "ab"] for one in (result, ordinary))
    shapes = [[leaf.shape for leaf in leaves_of(one)] for one in (ours, theirs)]
    assert shapes[0] != shapes[1] or largest_difference(ours, theirs) > 1e-5


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda one: one.NAME)
def test_options_outside_of_the_dict_are_refused_with_how_to_write_them(learner):
    text = re.escape(
        f'{learner.NAME} takes its options in one dict: {learner.__name__}({{"gae_lambda": 0.9}})'
    )
    with pytest.raises(ConfigError, match=text):
        learner(gae_lambda=0.9)
    with pytest.raises(ConfigError, match="by name it takes cfg and seed only, got gae_lambda, gamma"):
        learner({}, gae_lambda=0.9, gamma=1)
