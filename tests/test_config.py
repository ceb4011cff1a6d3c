"""Declared options, their checks, merging, and the texts that refuse (case G28)."""

import copy
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dressage.config import Option, check_names, merge_configs, nearest_name, suggest, whole_number
from dressage.errors import ConfigError, DressageError
from dressage.ppo import OPTIONS as PPO_OPTIONS
from dressage.rl.options import IPPO_OPTIONS

KNOWN = (
    "gamma",
    "gae_lambda",
    "learning_epochs",
    "mini_batches",
    "network.hidden_sizes",
    "network.activation",
)

GAMMA = Option("gamma", 0.99, "number", minimum=0, maximum=1, help="Discount factor.")
EPOCHS = Option("learning_epochs", 4, "integer", minimum=1)
MINI_BATCHES = Option("mini_batches", 4, "integer", minimum=1)
LEARNING_RATE = Option("learning_rate", 2.5e-4, "number", minimum=0, open_minimum=True)
CLIP = Option("clip_eps", 0.2, "number", minimum=0, open_minimum=True, maximum=1, open_maximum=True)
ACTIVATION = Option("network.activation", "tanh", "choice", choices=("tanh", "relu"))
TARGET_KL = Option("target_kl", None, "number", minimum=0, open_minimum=True, optional=True)
ANNEAL = Option("anneal", False, "boolean")
SIZES = Option("network.hidden_sizes", (64, 64), "integers", minimum=1)


def refused(option: Option, value: object) -> str:
    with pytest.raises(ConfigError) as caught:
        option.check(value, "IPPO")
    return str(caught.value)


# Names


def test_a_misspelled_option_is_refused_with_the_nearest_one():
    with pytest.raises(ConfigError, match=r"^IPPO has no option 'gama'\. Did you mean 'gamma'\?$"):
        check_names({"gama": 0.99}, KNOWN, "IPPO")


def test_every_misspelled_option_is_named_at_once():
    with pytest.raises(ConfigError, match=r"'gama'.*'gamma'.*'lamda'.*'gae_lambda'"):
        check_names({"gama": 0.99, "lamda": 0.9}, KNOWN, "IPPO")


def test_a_wrong_case_is_refused_with_the_right_one():
    with pytest.raises(ConfigError, match=r"no option 'Gamma'\. Did you mean 'gamma'\?"):
        check_names({"Gamma": 0.9}, KNOWN, "IPPO")


def test_a_name_like_nothing_gets_the_list_and_no_silly_suggestion():
    with pytest.raises(ConfigError, match=r"no option 'zzz'\. Known: gae_lambda, gamma, ") as caught:
        check_names({"zzz": 1}, KNOWN, "IPPO")
    assert "Did you mean" not in str(caught.value)


def test_a_nested_name_is_shown_with_its_path():
    with pytest.raises(ConfigError, match=r"'network\.hiden_sizes'\. Did you mean 'network\.hidden_sizes'\?"):
        check_names(["network.hiden_sizes"], KNOWN, "IPPO")


def test_known_names_pass():
    assert check_names(KNOWN, KNOWN, "IPPO") is None


def test_a_refused_option_is_a_value_error_and_one_of_ours():
    assert issubclass(ConfigError, ValueError)
    assert issubclass(ConfigError, DressageError)


def test_a_suggestion_without_any_known_name_does_not_fail():
    assert suggest("gamma", []) == " Known: ."


@given(st.sampled_from(KNOWN))
def test_a_name_in_another_case_finds_itself(name):
    assert nearest_name(name.swapcase(), KNOWN) == name


@given(st.sampled_from(KNOWN), st.data())
def test_a_name_with_one_letter_missing_finds_itself(name, data):
    at = data.draw(st.integers(0, len(name) - 1))
    assert nearest_name(name[:at] + name[at + 1 :], KNOWN) == name


@given(st.text(), st.lists(st.text()))
def test_the_nearest_name_is_a_known_one_or_none(name, known):
    assert nearest_name(name, known) in {None, *known}


PPO_NAME_AND_IPPO_NAME = [
    ("LR", "learning_rate"),
    ("NUM_STEPS", "rollout_length"),
    ("UPDATE_EPOCHS", "learning_epochs"),
    ("NUM_MINIBATCHES", "mini_batches"),
    ("ENT_COEF", "entropy_coef"),
    ("VF_COEF", "value_coef"),
    ("ANNEAL_LR", "anneal_learning_rate"),
    ("NORMALIZE_ENV", "normalize_observations"),
    ("HIDDEN_ACTIVATION", "network.activation"),
]
PPO_NAMES = [option.name for option in PPO_OPTIONS]
IPPO_NAMES = [option.name for option in IPPO_OPTIONS]


@pytest.mark.parametrize(("ppo", "ippo"), PPO_NAME_AND_IPPO_NAME)
def test_another_learners_name_is_answered_with_the_name_here(ppo, ippo):
    assert nearest_name(ppo, IPPO_NAMES) == ippo
    assert nearest_name(ippo, PPO_NAMES) == ppo


@pytest.mark.parametrize("name", ["epochs", "num_epochs", "n_epochs"])
def test_what_is_called_differently_elsewhere_is_found_by_its_meaning(name):
    assert nearest_name(name, IPPO_NAMES) == "learning_epochs"
    assert nearest_name(name, PPO_NAMES) == "UPDATE_EPOCHS"
    with pytest.raises(ConfigError, match=r"^IPPO has no option 'NUM_STEPS'\. Did you mean 'rollout_length'"):
        check_names(["NUM_STEPS"], IPPO_NAMES, "IPPO")


# Values


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        (GAMMA, 1.2, "a finite number >= 0 and <= 1"),
        (GAMMA, math.nan, "a finite number >= 0 and <= 1"),
        (GAMMA, True, "a finite number >= 0 and <= 1"),
        (GAMMA, None, "a finite number >= 0 and <= 1"),
        (EPOCHS, 0, "an integer >= 1"),
        (EPOCHS, -3, "an integer >= 1"),
        (EPOCHS, True, "an integer >= 1"),
        (MINI_BATCHES, 2.5, "an integer >= 1"),
        (MINI_BATCHES, math.inf, "an integer >= 1"),
        (LEARNING_RATE, math.nan, "a finite number > 0"),
        (LEARNING_RATE, math.inf, "a finite number > 0"),
        (LEARNING_RATE, 0, "a finite number > 0"),
        (CLIP, -0.2, "a finite number > 0 and < 1"),
        (CLIP, 1.0, "a finite number > 0 and < 1"),
        (ACTIVATION, "zzz", "one of 'tanh', 'relu'"),
        (ACTIVATION, None, "one of 'tanh', 'relu'"),
        (TARGET_KL, 0.0, "a finite number > 0 or None"),
        (ANNEAL, 1, "True or False"),
        (ANNEAL, "yes", "True or False"),
        (SIZES, (64, 0), "a sequence of integers >= 1"),
        (SIZES, "64", "a sequence of integers >= 1"),
        (SIZES, 64, "a sequence of integers >= 1"),
        (SIZES, [64, 2.5], "a sequence of integers >= 1"),
    ],
)
def test_a_wrong_value_is_refused_with_its_name_itself_and_the_allowed_range(option, value, allowed):
    assert refused(option, value) == f"IPPO option {option.name!r} must be {allowed}, got {value!r}."


@pytest.mark.parametrize(("option", "value"), [(GAMMA, "0.9"), (MINI_BATCHES, "4"), (LEARNING_RATE, "1e-3")])
def test_a_number_in_quotes_is_refused_with_how_to_write_it(option, value):
    remedy = "It is a text: leave out the quotes; YAML wants a dot before an exponent, as in 1.0e-3."
    assert refused(option, value).endswith(f", got {value!r}. {remedy}")


SIDES = Option("sides", (3,), "integers", 3, besides=(-1,))
NORM = Option("norm", 1.0, "number", 0, open_minimum=True, besides=(math.inf,))


def test_numbers_beside_the_bounds_are_legal_where_they_are_declared():
    assert SIDES.check([3, -1], "Maze") == (3, -1)
    assert NORM.check(math.inf, "Maze") == math.inf
    with pytest.raises(ConfigError, match=r"'sides' must be a sequence of integers >= 3, or -1, got \[0\]"):
        SIDES.check([0], "Maze")
    with pytest.raises(ConfigError, match=r"'norm' must be a finite number > 0, or inf, got -inf"):
        NORM.check(-math.inf, "Maze")


def test_a_misspelled_choice_is_refused_with_the_nearest_one():
    assert refused(ACTIVATION, "rleu").endswith("one of 'tanh', 'relu', got 'rleu'. Did you mean 'relu'?")


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        (GAMMA, 1, 1.0),
        (GAMMA, 0, 0.0),
        (GAMMA, np.float32(0.5), 0.5),
        (EPOCHS, 1, 1),
        (EPOCHS, 1e6, 1_000_000),
        (EPOCHS, np.int64(7), 7),
        (ACTIVATION, "relu", "relu"),
        (TARGET_KL, None, None),
        (TARGET_KL, 0.01, 0.01),
        (ANNEAL, True, True),
        (SIZES, [32, 16.0], (32, 16)),
        (SIZES, (), ()),
    ],
)
def test_a_legal_value_comes_back_in_the_type_of_the_option(option, value, expected):
    checked = option.check(value, "IPPO")
    assert checked == expected
    assert type(checked) is type(expected)


@given(st.integers(), st.integers(), st.integers())
def test_an_integer_is_accepted_exactly_within_its_bounds(value, one, other):
    low, high = sorted((one, other))
    option = Option("count", low, "integer", minimum=low, maximum=high)
    assert option.in_range(value) == (low <= value <= high)


@given(st.floats(allow_nan=False), st.booleans(), st.booleans())
def test_an_open_bound_excludes_itself_alone(value, open_minimum, open_maximum):
    option = Option(
        "x", 0.5, "number", minimum=0, maximum=1, open_minimum=open_minimum, open_maximum=open_maximum
    )
    inside = 0 < value < 1 or (value == 0 and not open_minimum) or (value == 1 and not open_maximum)
    assert option.in_range(value) == inside


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1e6, 1_000_000),
        (4, 4),
        (np.int32(4), 4),
        (np.float64(4.0), 4),
        (-5, -5),
        (2**40, 2**40),
        (1000.5, None),
        (math.nan, None),
        (math.inf, None),
        (True, None),
        (np.bool_(True), None),
        ("1000", None),
        (None, None),
        (1 + 0j, None),
    ],
)
def test_a_whole_number_is_read_from_numbers_alone(value, expected):
    assert whole_number(value) == expected


@given(st.integers(-(2**53), 2**53))
def test_a_whole_float_reads_as_its_integer(number):
    assert whole_number(float(number)) == number


# Merging

leaves = st.none() | st.integers() | st.lists(st.integers() | st.lists(st.integers(), max_size=2), max_size=3)
configs = st.recursive(
    st.dictionaries(st.sampled_from("abcd"), leaves, max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abcd"), leaves | inner, max_size=3),
    max_leaves=8,
)


def merged_by_hand(defaults: dict, overrides: dict) -> dict:
    """The plain reference: what each name means, one name at a time."""
    expected = {}
    for name in {**defaults, **overrides}:
        if name not in overrides:
            expected[name] = defaults[name]
        elif isinstance(defaults.get(name), dict) and isinstance(overrides[name], dict):
            expected[name] = merged_by_hand(defaults[name], overrides[name])
        else:
            expected[name] = overrides[name]
    return expected


def containers_of(value: object) -> list[object]:
    """All dictionaries and lists within a configuration, itself included."""
    if isinstance(value, dict):
        return [value, *(found for item in value.values() for found in containers_of(item))]
    if isinstance(value, list):
        return [value, *(found for item in value for found in containers_of(item))]
    return []


def test_nested_mappings_merge_and_lists_are_replaced():
    defaults = {"gamma": 0.99, "network": {"hidden_sizes": [64, 64], "activation": "tanh"}}
    merged = merge_configs(defaults, {"network": {"hidden_sizes": [32]}})
    assert merged == {"gamma": 0.99, "network": {"hidden_sizes": [32], "activation": "tanh"}}


def test_merging_nothing_gives_an_equal_object_that_is_another():
    defaults = {"gamma": 0.99, "network": {"hidden_sizes": [64, 64]}}
    merged = merge_configs(defaults, None)
    assert merged == defaults
    merged["network"]["hidden_sizes"].append(1)
    assert defaults == {"gamma": 0.99, "network": {"hidden_sizes": [64, 64]}}


def test_an_override_may_set_none():
    assert merge_configs({"target_kl": 0.01}, {"target_kl": None}) == {"target_kl": None}


@given(configs, configs)
def test_merging_equals_the_plain_reference(defaults, overrides):
    assert merge_configs(defaults, overrides) == merged_by_hand(defaults, overrides)


@given(configs, configs)
def test_merging_changes_neither_input(defaults, overrides):
    before = copy.deepcopy((defaults, overrides))
    merge_configs(defaults, overrides)
    assert (defaults, overrides) == before


@given(configs, configs)
def test_the_merged_configuration_shares_no_container_with_its_inputs(defaults, overrides):
    inputs = {id(container) for container in containers_of(defaults) + containers_of(overrides)}
    shared = [c for c in containers_of(merge_configs(defaults, overrides)) if id(c) in inputs]
    assert shared == []


@given(configs)
def test_merging_a_configuration_into_itself_changes_nothing(config):
    assert merge_configs(config, config) == config


@pytest.mark.parametrize(("kind", "bad"), [("text", ""), ("text", 3), ("mapping", [1]), ("mapping", None)])
def test_texts_and_mappings_are_refused_when_they_are_none(kind, bad):
    with pytest.raises(ConfigError, match=f"option 'x' must be a {kind}"):
        Option("x", None, kind).check(bad, "owner")


def test_a_mapping_is_copied():
    given = {"a": {"b": 1}}
    checked = Option("x", None, "mapping").check(given, "owner")
    checked["a"]["b"] = 2
    assert given == {"a": {"b": 1}}
