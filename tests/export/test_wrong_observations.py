"""What no policy can act on is refused by every runner with what the policy takes, and with the remedy."""

import re

import numpy as np
import pytest

from dressage.export import FORMATS, Card, NumpyPolicy, OnnxPolicy, Signal, StableHloPolicy, export_policy
from dressage.rl.policy_set import PolicySet
from tests.export.shipped import policy_of, shipped

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

RUNNERS = {"onnx": OnnxPolicy, "safetensors": NumpyPolicy, "stablehlo": StableHloPolicy}
ROW = np.zeros(3, np.float32)
NAMES = (Signal("height", "m"), Signal("slope"), Signal("speed", "m/s"))
TAKEN = "It takes float32 numbers of shape (3,), or a batch with leading axes: in the environment's order."


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """A policy whose file names the numbers of its observation, and one that has too many to name."""
    folder = tmp_path_factory.mktemp("named")
    many = tuple(Signal(f"joint {index}", "rad") for index in range(10))
    few = export_policy(policy_of("squashed"), folder / "few.safetensors", card=Card(observation=NAMES))
    # The card is what a person says of the policy; nothing checks that it names as many as there are.
    more = export_policy(policy_of("squashed"), folder / "more.safetensors", card=Card(observation=many))
    return NumpyPolicy(few), NumpyPolicy(more)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    ("observation", "flaw"),
    [
        ({"observation": ROW}, "got a dict of 'observation'. Give the array itself: act(observation['obs"),
        ((ROW, {}), "takes one array, got a tuple of 2. Give the array itself, perhaps act(observation[0])."),
        ({"a": 1.0, "b": 2.0}, "got a dict of 'a', 'b'. Give the array itself: its numbers side by side."),
        ({}, "got a dict of nothing. Give the array itself: its numbers side by side."),
        (None, "'observation' is not made of numbers: its type is object."),
        ("0 0 0", "'observation' is not made of numbers: its type is <U5."),
        (["0", "0", "0"], "'observation' is not made of numbers: its type is <U1."),
        (ROW + 1j, "'observation' is not made of numbers: its type is complex64."),
        ([ROW, [1.0]], "The observation is no array: setting an array element with a sequence."),
        (np.zeros((3, 1)), "takes 'observation' of shape (3,), or a batch of it, got (3, 1)."),
    ],
)
def test_what_is_no_observation_is_refused_with_what_the_policy_takes(name, observation, flaw):
    with pytest.raises(ValueError, match=re.escape(flaw)) as refusal:
        shipped("squashed").runners[name].act(observation)
    assert str(refusal.value).endswith(TAKEN)


def test_the_numbers_are_named_in_their_order_with_their_units(named):
    few, more = named
    with pytest.raises(ValueError, match=r": height in m, slope, speed in m/s, in this order\.$"):
        few.act(np.zeros(4))
    with pytest.raises(
        ValueError, match=r"joint 7 in rad and 2 more, which `dressage inspect` lists, in this"
    ):
        more.act(np.zeros(4))


@pytest.mark.parametrize("name", FORMATS)
def test_parts_of_an_observation_are_asked_for_by_their_names(name):
    runner = shipped("tree of observations").runners[name]
    whole = {"cup": 2, "gauges": (np.zeros((2, 3)), np.zeros(2)), "switches": np.zeros(2)}
    runner.act(whole)
    for change, flaw in (
        ({"cup": 2.5}, r"takes whole numbers \(int64\) as 'observation\.cup', got 2\.5\."),
        ({"cup": np.nan}, r"takes whole numbers \(int64\) as 'observation\.cup', got nan\."),
        ({"lid": 1}, r"takes no 'observation\.lid'; it takes observation\.cup, observation\.gauges\.0"),
        (
            {"cup": [2, 2]},
            r"different leading axes: \{'observation\.cup': \(2,\), 'observation\.gauges\.0': \(",
        ),
    ):
        with pytest.raises(ValueError, match=flaw) as refusal:
            runner.act(whole | change)
        assert "It takes observation.cup (int64, shape ()), observation.gauges.0 (" in str(refusal.value)
    with pytest.raises(ValueError, match=r"has no 'observation\.cup'; it has observation\. It takes"):
        runner.act(ROW)


@pytest.mark.parametrize("name", FORMATS)
def test_a_state_that_is_none_is_refused_with_what_to_give(name):
    runner = shipped("recurrent agent").runners[name]
    _, state = runner.act(ROW)
    for wrong, flaw in (
        (state["state"], r"The state is a ndarray, and not the dict of the shapes \{'state': \(5,\)\}"),
        ({"hidden": ROW}, r"The state has the shapes \{'hidden': \(3,\)\}, and not the dict"),
        (
            {"state": np.zeros((2, 5))},
            r"has the shapes \{'state': \(2, 5\)\}.*Give what `act` returned beside",
        ),
    ):
        with pytest.raises(ValueError, match=flaw):
            runner.act(ROW, wrong)
    with pytest.raises(ValueError, match="has no memory and takes no state"):
        shipped("squashed").runners[name].act(ROW, state)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("given", [[0.0, 1.0, 2.0], np.arange(3), np.arange(3.0)])
def test_lists_and_other_numbers_are_taken_as_what_they_are(name, given):
    made = shipped("squashed")
    expected = made.policy.get_action(np.arange(3, dtype=np.float32))
    np.testing.assert_allclose(made.runners[name].act(given), expected, rtol=1e-5)


def test_a_file_for_another_runner_is_refused_with_the_one_that_runs_it(tmp_path):
    files = shipped("squashed").files
    for path, refusal in (
        (files["onnx"], "ONNX files are read by OnnxPolicy"),
        (files["stablehlo"], "holds a StableHLO program, which StableHloPolicy runs"),
    ):
        with pytest.raises(ValueError, match=refusal):
            NumpyPolicy(path)
    PolicySet({"left": policy_of("agent"), "right": policy_of("agent")}, "ippo", {}).save(tmp_path)
    with pytest.raises(ValueError, match="holds what training saved for itself.*dressage export RUN"):
        NumpyPolicy(tmp_path / "policies.safetensors")


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("kind", ["agent", "factored", "parameterized", "categorical"])
def test_nan_is_no_choice_among_discrete_actions(name, kind):
    runner = shipped(kind).runners[name]
    (port,) = (port for port in runner.graph["inputs"] if port["name"].startswith("observation"))
    broken = np.zeros((2, *port["shape"]), np.float32)
    runner.act(broken)
    broken[1].flat[0] = np.nan
    with pytest.raises(ValueError, match=r"^No action can be chosen: the probabilities\S* of"):
        runner.act(broken)


@pytest.mark.parametrize("name", FORMATS)
def test_nan_among_continuous_actions_is_told_by_nan(name):
    assert np.isnan(shipped("squashed").runners[name].act(np.full(3, np.nan, np.float32))).any()


def test_an_empty_batch_is_refused_where_no_program_takes_one():
    with pytest.raises(ValueError, match=r"at least one observation, got a batch of \(0,\)"):
        shipped("squashed").runners["stablehlo"].act(np.zeros((0, 3), np.float32))
