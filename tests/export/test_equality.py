"""Every format computes what the live policy computes, for every kind of policy and any batch size."""

import jax
import numpy as np
import pytest

from dressage.export import FORMATS
from dressage.export.comparison import allowed
from dressage.export.numpy_policy import bind, operations
from dressage.learning.graph_building import add_head
from dressage.learning.policy_graph import GraphDraft, Port
from dressage.learning.specs import agent_spec
from tests.export.shipped import AGENT_KINDS, KINDS, PPO_KINDS, Box, shipped
from tests.ppo.test_policy import SCALING

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FORMATS)
def test_a_file_computes_what_the_policy_does_on_4096_observations(kind, name):
    made = shipped(kind)
    trial = made.trial
    found = made.runners[name].run(trial.inputs)
    assert len(next(iter(trial.inputs.values()))) == 4096
    for output, live in trial.live.items():
        assert found[output].shape == live.shape
        if live.dtype.kind == "i":
            assert np.mean(found[output] != live) < 0.005  # ties of equally likely choices
        else:
            assert np.isfinite(found[output]).all()
            assert (np.abs(found[output] - live) <= allowed(live, trial.own_error[output])).all()
            ordinary = slice(6, None, 8)
            np.testing.assert_allclose(found[output][ordinary], live[ordinary], rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("kind", PPO_KINDS)
def test_the_observations_hold_extremes(kind):
    numbers = [array for array in shipped(kind).trial.inputs.values() if array.dtype == np.float32]
    flat = np.concatenate([array.reshape(len(array), -1) for array in numbers], axis=1)
    for extreme in (1e6, -1e6, 0.0):
        assert (flat == extreme).all(axis=1).sum() >= 512
    if PPO_KINDS[kind][1].get("scaling") is SCALING:
        deviations = np.abs(flat - SCALING.mean) / np.sqrt(SCALING.var)
        assert ((deviations > 900) & (deviations < 1100)).all(axis=1).sum() >= 512


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FORMATS)
def test_one_file_takes_one_observation_and_batches_of_1_7_and_256(kind, name):
    made = shipped(kind)
    runner, trial = made.runners[name], made.trial
    whole = runner.run(trial.inputs)
    floats = [output for output in trial.live if trial.live[output].dtype.kind == "f"]
    for lead, rows in (((), 6), ((1,), slice(0, 1)), ((7,), slice(0, 7)), ((256,), slice(0, 256))):
        part = runner.run({port: array[rows] for port, array in trial.inputs.items()})
        for output in floats:
            assert part[output].shape == (*lead, *trial.live[output].shape[1:])
            bound = allowed(trial.live[output], trial.own_error[output])[rows]
            assert (np.abs(part[output] - whole[output][rows]) <= bound).all()


@pytest.mark.parametrize("name", FORMATS)
def test_any_number_of_leading_axes_will_do(name):
    made = shipped("squashed")
    observations = made.trial.inputs["observation"][:12].reshape(2, 6, 3)
    action = made.runners[name].act(observations)
    np.testing.assert_allclose(action, made.policy.get_action(observations), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", FORMATS)
def test_a_tree_of_observations_is_given_as_the_environment_gives_it(name):
    space = PPO_KINDS["tree of observations"][1]["observation_space"]
    space.seed(0)
    observation = space.sample()
    made = shipped("tree of observations")
    action = made.runners[name].act(observation)
    np.testing.assert_allclose(action, made.policy.get_action(observation), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("kind", ["categorical", "factored", "binary", "matrix"])
def test_an_action_is_one_that_the_environment_takes(name, kind):
    made = shipped(kind)
    for row in range(6, 200, 8):
        action = np.asarray(made.runners[name].act(made.trial.inputs["observation"][row]))
        space = PPO_KINDS[kind][0]
        assert space.contains(action[()] if action.ndim == 0 else action.astype(space.dtype))


@pytest.mark.parametrize("name", FORMATS)
def test_parameterized_actions_keep_the_structure_of_their_space(name):
    observation = np.zeros(3, np.float32)
    whole = shipped("parameterized").runners[name].act(observation)
    assert {part: np.shape(value) for part, value in whole.items()} == {
        "flags": (2,),
        "force": (2,),
        "go": (),
    }
    parts = shipped("parameterized tuple").runners[name].act(observation)
    assert [np.shape(value) for value in parts] == [(), (2,), (2,)]


@pytest.mark.parametrize("name", FORMATS)
def test_a_recurrent_policy_takes_and_returns_its_state(name):
    runner = shipped("recurrent agent").runners[name]
    observations = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    action, state = runner.act(observations[0])
    again = runner.run({"observation": observations[0], "state": np.zeros(5, np.float32)})
    np.testing.assert_array_equal(action, again["action"])
    for observation in observations[1:]:
        action, state = runner.act(observation, state)
    assert state["state"].shape == (5,)
    fresh, _ = runner.act(observations[-1])
    assert np.abs(fresh - action).max() > 1e-3  # the state matters


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("kind", AGENT_KINDS)
def test_a_file_acts_through_an_episode_as_the_agents_policy_does(name, kind):
    made, space = shipped(kind), AGENT_KINDS[kind][0]
    space.seed(0)
    made.policy.reset()
    state, recurrent = None, "recurrent" in kind
    for _ in range(5):
        observation = with_a_legal_choice(space.sample())
        given = (observation, state) if recurrent else (observation,)
        answer = made.runners[name].act(*given)
        action, state = answer if recurrent else (answer, None)
        live = made.policy.act(observation)
        for one, other in zip(jax.tree.leaves(action), jax.tree.leaves(live), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def with_a_legal_choice(observation):
    masks = observation["action_mask"] if isinstance(observation, dict) else ()
    for mask in masks if isinstance(masks, tuple) else (masks,):
        mask[0] = 1
    return observation


def test_bounds_are_never_left_by_a_rounding_error():
    rng = np.random.default_rng(0)
    ends = np.sort(rng.normal(size=(2, 1000)) * 10.0 ** rng.integers(-6, 30, 1000), axis=0)
    low, high = ends.astype(np.float32)
    low, high = low[low < high], high[low < high]
    for squash in (True, False):
        spec = agent_spec("agent", Box(-1, 1, (1,)), Box(low, high))
        draft = GraphDraft()
        draft.take(Port("outputs", (len(low),)))
        graph = draft.finish(add_head(draft, "outputs", spec, squash=squash))
        ((function, _, weights, _),) = bind(graph.to_json()["ops"], operations(np), graph.weights)
        for extreme, bound in ((-100, low), (100, high)):
            action = function(np.full(len(low), extreme, np.float32), *weights)
            assert (action >= low).all() and (action <= high).all()
            assert (np.abs(action - bound) <= 4e-7 * np.maximum(-low, high)).all()


@pytest.mark.parametrize("name", FORMATS)
def test_statistics_of_mean_50_and_variance_400_travel_with_the_file(name):
    made = shipped("squashed")
    observations = np.random.default_rng(0).normal(size=(32, 3)) * [20, 0.5, 1] + [50, -3, 0]
    action = made.runners[name].act(observations.astype(np.float32))
    np.testing.assert_allclose(action, made.policy.get_action(observations), rtol=1e-5, atol=1e-5)
    without = made.policy.replace(obs_scaling=None)
    assert np.abs(without.get_action(observations) - action).max() > 0.5
