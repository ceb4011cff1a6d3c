"""Specifications, cost tracking and acting policies of the multi-agent learners."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.errors import UnsupportedSpaceError
from dressage.learning.cost_tracking import CostTracking
from dressage.rl.base import AgentSpec, EpisodicCostTracker, PolicyAdapter, infer_agent_specs

Discrete, MultiDiscrete, MultiBinary, Box, Dict, Tuple = (
    getattr(gymnasium.spaces, name)
    for name in ("Discrete", "MultiDiscrete", "MultiBinary", "Box", "Dict", "Tuple")
)
SEEN = Box(-1.0, 1.0, (2, 2), np.float32)
HYBRID = Dict(kind=Discrete(2, start=1), grid=MultiDiscrete([2, 3]), raw=Box(-np.inf, np.inf, (2,)))
ACTIONS = {
    "discrete": Discrete(3, start=-1),
    "certain": Discrete(1, start=2),
    "factored": MultiDiscrete([2, 3], start=[1, -1]),
    "grid": MultiDiscrete([[2, 3], [4, 5]]),
    "bits": MultiBinary(3),
    "box": Box(-1.0, 1.0, (3,), np.float32),
    "scalar": Box(-2.0, 5.0, (), np.float32),
    "hybrid": HYBRID,
    "pair": Tuple((Discrete(4), Box(-np.inf, np.inf, (2,)))),
}


class Agents:
    """A ParallelEnv as far as its spaces go."""

    def __init__(self, actions, observation=SEEN):
        self.possible_agents = list(actions)
        self._actions, self._observation = actions, observation

    def observation_space(self, agent):
        return self._observation

    def action_space(self, agent):
        return self._actions[agent]


def adapter(name, squash=False):
    spec = infer_agent_specs(Agents({name: ACTIONS[name]}))[0]
    weights = jax.random.normal(jax.random.key(1), (spec.obs_dim, spec.action_dim))

    def outputs(params, obs):
        values = obs @ params
        spread = jnp.zeros((*values.shape[:-1], spec.continuous_dim)) if spec.continuous_dim else None
        return values, spread

    return PolicyAdapter(
        name,
        weights,
        outputs,
        spec.obs_dim,
        spec.action_kind,
        spec.action_nvec,
        spec.action_shape,
        spec.action_start,
        spec.continuous_dim,
        observation_space=SEEN,
        action_space=ACTIONS[name],
        squash=squash,
    )


@pytest.mark.parametrize(
    ("name", "kind", "nvec", "shape", "start", "outputs"),
    [
        ("discrete", "discrete", (3,), (), (-1,), 3),
        ("certain", "discrete", (1,), (), (2,), 1),
        ("factored", "multi_discrete", (2, 3), (2,), (1, -1), 5),
        ("grid", "multi_discrete", (2, 3, 4, 5), (2, 2), (0, 0, 0, 0), 14),
        ("bits", "multi_discrete", (2, 2, 2), (3,), (0, 0, 0), 6),
        ("box", "continuous", (), (3,), (), 3),
        ("scalar", "continuous", (), (), (), 1),
        ("hybrid", "parameterized", (2, 2, 3), (), (1, 0, 0), 9),
        ("pair", "parameterized", (4,), (), (0,), 6),
    ],
)
def test_a_specification_says_what_the_spaces_are(name, kind, nvec, shape, start, outputs):
    spec = infer_agent_specs(Agents({name: ACTIONS[name]}))[0]
    found = spec.action_kind, spec.action_nvec, spec.action_shape, spec.action_start, spec.action_dim
    assert found == (kind, nvec, shape, start, outputs)
    assert spec.obs_dim == 4


def test_specifications_stand_in_the_order_of_possible_agents_and_may_differ():
    assert [spec.agent_id for spec in infer_agent_specs(Agents(ACTIONS))] == list(ACTIONS)


def test_an_action_mask_is_not_counted_as_observation():
    masked = Dict(observation=Box(0, 255, (2, 3), np.uint8), action_mask=MultiBinary(3))
    assert infer_agent_specs(Agents({"a": Discrete(3)}, masked))[0].obs_dim == 6


def test_an_environment_without_possible_agents_is_refused():
    with pytest.raises(ValueError, match="Agents has no possible_agents"):
        infer_agent_specs(Agents({}))


def test_an_unsupported_space_is_refused_by_agent_and_space():
    with pytest.raises(UnsupportedSpaceError, match=r"Agent 'a' acts in Text.*supported: Discrete"):
        infer_agent_specs(Agents({"a": gymnasium.spaces.Text(3)}))


@pytest.mark.parametrize("squash", [False, True])
@pytest.mark.parametrize("name", ACTIONS)
def test_every_action_lies_in_the_environments_space(name, squash):
    policy, space = adapter(name, squash and name in ("box", "scalar")), ACTIONS[name]
    generator = np.random.default_rng(0)
    act = jax.vmap(lambda obs, key: policy._head().environment_action(policy._distribution(obs).sample(key)))
    observations = generator.uniform(-1, 1, (1000, 4)).astype(np.float32)
    batch = act(observations, jax.random.split(jax.random.key(0), 1000))
    one = policy.act(observations[0].reshape(2, 2), rng=jax.random.key(3))
    assert space.contains(one)
    rows = [jax.tree.map(lambda leaf, i=i: np.asarray(leaf[i]), batch) for i in range(1000)]
    from dressage.rl.adapters import _cast

    assert all(space.contains(_cast(row, space)) for row in rows)


def test_the_likeliest_action_needs_no_key_and_a_sample_does():
    policy = adapter("discrete")
    obs = np.full(4, 0.5, np.float32)
    logits = obs @ np.asarray(policy.params)
    assert policy.act(obs) == np.argmax(logits) - 1
    assert policy.act(obs, rng=jax.random.key(0), deterministic=True) == np.argmax(logits) - 1
    with pytest.raises(ValueError, match=r"act\(deterministic=False\) needs rng"):
        policy.act(obs, deterministic=False)


def test_probabilities_come_one_array_a_component_for_one_observation_and_for_a_batch():
    policy = adapter("grid")
    assert [probs.shape for probs in policy.component_action_probs(np.zeros((2, 2)))] == [
        (2,),
        (3,),
        (4,),
        (5,),
    ]
    batch = policy.component_action_probs(np.ones((7, 4)))
    assert [probs.shape for probs in batch] == [(7, 2), (7, 3), (7, 4), (7, 5)]
    np.testing.assert_allclose([probs.sum(-1) for probs in batch], 1.0, rtol=1e-6)


def test_a_continuous_policy_has_no_component_probabilities():
    with pytest.raises(ValueError, match="'box' is continuous: it has no discrete component"):
        adapter("box").component_action_probs(np.zeros(4))


def test_an_observation_of_another_length_is_refused_with_both_lengths():
    with pytest.raises(ValueError, match=r"takes observations of length 4, got shape \(3,\)"):
        adapter("discrete").log_prob(np.zeros(3), 0)


G16 = [
    (([1, 0, 2], [0, 0, 0]), (3, 3, 1, None, 1, 0)),
    (([0, 3], [0, 1]), (0, 0, 1, 6, 0.2, 1)),
    (([1, 1, 1, 1], [0, 1, 0, 1]), (0, 0, 1, 2, 0.5, 2)),
    (([5, 5], [0, 0]), (10, 2, 1, 2, 0.5, 0)),
    (([], []), (10, 2, 1, 2, 0.5, 0)),
]
G17 = [
    (([4, 2], [0, 0]), (5, 1.5, 0.25, None, 1, 0)),
    (([8, 0, 16], [0, 1, 0]), (16, 1, 0.5, 7, 1 / 1.875, 1)),
    (([2], [1]), (0, 0, 1, 17, 1 / 1.5, 1)),
]


@pytest.mark.parametrize(("gamma", "rollouts"), [(1.0, G16), (0.5, G17)])
def test_episodic_costs_are_tracked_from_true_starts_across_rollouts(gamma, rollouts):
    tracker = EpisodicCostTracker(gamma=gamma, initial_return=25.0)
    for (costs, ends), (running, mass, discount, last, scale, finished) in rollouts:
        assert tracker.update(costs, ends) == finished
        assert (tracker.running_return, tracker.running_mass, tracker.discount) == (running, mass, discount)
        assert tracker.last_return == last
        assert tracker.estimate == (25.0 if last is None else last)
        assert tracker.last_scale == pytest.approx(scale, rel=1e-12)


def test_the_vectorised_tracker_equals_the_single_one_stream_by_stream():
    generator = np.random.default_rng(3)
    singles = [EpisodicCostTracker(gamma=0.9) for _ in range(6)]
    tracking = CostTracking.start((6, 1))
    update = jax.jit(lambda tracking, costs, ends: tracking.update(costs, ends, 0.9))
    for _ in range(4):
        costs = generator.uniform(0, 2, (7, 6, 1)).astype(np.float32)
        ends = generator.random((7, 6, 1)) < 0.15
        tracking, finished = update(tracking, costs, ends)
        counts = [single.update(costs[:, i, 0], ends[:, i, 0]) for i, single in enumerate(singles)]
        np.testing.assert_array_equal(finished, counts)
        np.testing.assert_array_equal(tracking.seen, [single.last_return is not None for single in singles])
        running = [single.running_return for single in singles]
        np.testing.assert_allclose(tracking.episode.running_return[:, 0], running, rtol=1e-5)
        np.testing.assert_allclose(tracking.last_scale, [single.last_scale for single in singles], rtol=1e-5)
        last = [single.last_return or 0.0 for single in singles]
        np.testing.assert_allclose(tracking.last_return, last, rtol=1e-5)


def test_a_cost_that_is_not_finite_changes_nothing():
    tracker = EpisodicCostTracker()
    with pytest.raises(ValueError, match="cost of step 1 of the rollout is nan"):
        tracker.update([1.0, float("nan")], [0, 1])
    assert tracker == EpisodicCostTracker()


def test_a_specification_is_hashable_so_that_it_may_be_static():
    spec = infer_agent_specs(Agents({"hybrid": HYBRID}))[0]
    assert isinstance(spec, AgentSpec)
    assert hash(spec) == hash(infer_agent_specs(Agents({"hybrid": HYBRID}))[0])
