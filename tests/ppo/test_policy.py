"""The policy that training leaves: what it computes, and where it can be used."""

import dataclasses

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.errors import ConfigError
from dressage.learning.specs import agent_spec, observation_layout
from dressage.networks import ACTIVATIONS
from dressage.ppo import Config, NormalizeVec, Policy, PPOResult, RunnerState, SquashState, train
from dressage.ppo.result import build_policy
from dressage.ppo.session import Session, proximal_learner
from tests.ppo.conftest import SWEEP
from tests.ppo.small_tasks import SMALL, Bounds, row

BOX3 = gymnasium.spaces.Box(-np.inf, np.inf, (3,))
ACTIVATIONS_BY_HAND = {
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "softplus": lambda x: np.log1p(np.exp(x)),
}
SCALING = NormalizeVec(jnp.array([50.0, -3.0, 0.0]), jnp.array([400.0, 0.25, 1.0]), jnp.float32(1000))


def policy_for(action_space, *, observation_space=BOX3, scaling=None, seed=0, **changes):
    """Put a policy with drawn parameters together, as `train` does."""
    config = Config(**{"NUM_HIDDEN_UNITS": 8, **changes}).validate()
    spec = agent_spec("agent", observation_space, action_space)
    learner = proximal_learner(spec, config)
    params = learner.init(jax.random.key(seed), 1).params["params"]
    # A hundred times the first outputs, so that actions differ.
    params["actor"] = jax.tree.map(lambda leaf: leaf, params["actor"])
    last = max(name for name in params["actor"] if name.startswith("Dense_"))
    params["actor"][last] = jax.tree.map(lambda leaf: 100 * leaf + 0.1, params["actor"][last])
    return build_policy(config, spec, observation_layout("agent", observation_space), params, scaling)


def by_hand(layers, inputs, activation="tanh"):
    """Apply dense layers in NumPy."""
    names = sorted(name for name in layers if name.startswith("Dense_"))
    for name in names:
        kernel, bias = (np.asarray(layers[name][part], np.float64) for part in ("kernel", "bias"))
        inputs = inputs @ kernel + bias
        inputs = ACTIVATIONS_BY_HAND[activation](inputs) if name != names[-1] else inputs
    return inputs


def observations(*shape):
    return np.random.default_rng(0).normal(size=(*shape, 3)).astype(np.float32)


def test_every_activation_on_offer_is_known_here_by_hand():
    assert set(ACTIVATIONS) == set(ACTIVATIONS_BY_HAND)


@pytest.mark.parametrize("activation", ACTIVATIONS_BY_HAND)
def test_HIDDEN_ACTIVATION_is_what_actor_and_critic_apply(activation):
    policy = policy_for(gymnasium.spaces.Box(-1, 1, (2,)), HIDDEN_ACTIVATION=activation)
    obs = observations(4)
    np.testing.assert_allclose(
        policy.apply_actor(obs), by_hand(policy.model["actor"], obs, activation), rtol=1e-4
    )
    np.testing.assert_allclose(
        policy.value(obs), by_hand(policy.model["critic"], obs, activation)[:, 0], rtol=1e-4
    )


@pytest.mark.parametrize("squash", [True, False])
def test_a_normalised_policy_equals_its_forward_pass_by_hand(squash):
    space = gymnasium.spaces.Box(np.float32([-2, 0]), np.float32([5, 1]))
    policy = policy_for(space, scaling=SCALING, SQUASH=squash)
    raw = observations(32) * [20, 0.5, 30] + [50, -3, 0]
    normalized = np.clip((raw - [50, -3, 0]) / np.sqrt(np.array([400, 0.25, 1]) + 1e-8), -10, 10)
    assert np.abs(normalized).max() == 10  # the clip is at work
    u = by_hand(policy.model["actor"], normalized)
    bounded = np.tanh(u) if squash else np.clip(u, -1, 1)
    expected = np.array([-2, 0]) + (bounded + 1) / 2 * np.array([7, 1])
    np.testing.assert_allclose(policy.get_action(raw), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(policy.apply_actor(normalized), u, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        policy.value(raw), by_hand(policy.model["critic"], normalized)[:, 0], rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(policy.obs_scaling.normalize(raw), normalized, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(policy.obs_scaling.denormalize([1.0, 1.0, 1.0]), [70, -2.5, 1], rtol=1e-5)


@pytest.mark.parametrize("independent", [True, False])
def test_samples_spread_around_the_mode_by_the_policys_own_deviation(independent):
    policy = policy_for(gymnasium.spaces.Box(-1, 1, (2,)), STATE_INDEPENDENT_STD=independent)
    obs = observations()
    outputs = by_hand(policy.model["actor"], obs)
    log_std = np.asarray(policy.model["actor"]["log_std"]) if independent else outputs[2:]
    repeated = np.broadcast_to(obs, (20_000, 3))
    samples = np.asarray(policy.apply_actor(repeated, jax.random.key(0)))
    np.testing.assert_allclose(samples.mean(0), outputs[:2], atol=0.05 * np.exp(log_std).max())
    np.testing.assert_allclose(samples.std(0), np.exp(log_std), rtol=0.03)
    np.testing.assert_allclose(policy.apply_actor(obs), outputs[:2], rtol=1e-4)


def test_without_a_key_an_action_is_the_most_likely_and_with_one_it_is_drawn():
    policy = policy_for(gymnasium.spaces.Discrete(3, start=-1))
    obs = observations(1)
    logits = by_hand(policy.model["actor"], obs)[0]
    assert int(policy.get_action(obs[0])) == np.argmax(logits) - 1
    drawn = np.asarray(policy.get_action(np.repeat(obs, 20_000, 0), jax.random.key(1)))
    probabilities = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose([np.mean(drawn == value) for value in (-1, 0, 1)], probabilities, atol=0.02)
    first, second = (policy.get_action(obs, jax.random.key(2)) for _ in range(2))
    np.testing.assert_array_equal(first, second)


SPACES = [
    gymnasium.spaces.Box(-1, 1, (2,)),
    gymnasium.spaces.Box(-1, 1, ()),
    gymnasium.spaces.Box(0, 10, (2, 2)),
    gymnasium.spaces.Discrete(3, start=-1),
    gymnasium.spaces.Discrete(1, start=2),
    gymnasium.spaces.MultiDiscrete([2, 3], start=[1, -1]),
    gymnasium.spaces.MultiBinary(3),
]


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_every_action_is_within_the_space_for_single_observations_and_batches(space):
    policy = policy_for(space)
    batch = policy.get_action(observations(5, 4), jax.random.key(0))
    assert batch.shape == (5, 4, *space.shape)
    for action in np.asarray(batch).reshape(20, *space.shape):
        assert space.contains(np.asarray(action, space.dtype))
    single = policy.get_action(observations(5, 4)[2, 1])
    assert single.shape == space.shape
    np.testing.assert_allclose(single, policy.get_action(observations(5, 4))[2, 1], rtol=1e-5)
    assert policy.output_activation == (
        "gaussian" if isinstance(space, gymnasium.spaces.Box) else "categorical"
    )


def test_infinite_bounds_without_squashing_leave_actions_unscaled_and_clip_at_the_finite_bound():
    space = gymnasium.spaces.Box(np.float32([-1, 0]), np.float32([1, np.inf]))
    policy = policy_for(space, SQUASH=False)
    u = np.array(policy.apply_actor(observations(50), jax.random.key(0)))
    acted = policy.get_action(observations(50), jax.random.key(0))
    np.testing.assert_allclose(acted[:, 0], np.clip(u[:, 0], -1, 1), atol=1e-6)
    np.testing.assert_allclose(acted[:, 1], np.maximum(u[:, 1], 0), atol=1e-6)


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        ((-1.0, 0.0), (1.0, np.inf), r"action dimension 1 has bounds \[0, inf\]: squashing needs finite"),
        (
            (-3.4028e38, 0.0),
            (1.0, 1.0),
            r"action dimension 0 has bounds \[-3.4028e\+38, 1\]: squashing needs finite",
        ),
        ((0.0, 2.0), (1.0, 2.0), r"action dimension 1 has bounds \[2, 2\]: the lower bound must be below"),
    ],
)
def test_bounds_that_nothing_can_be_squashed_into_are_refused_naming_the_dimension(low, high, text):
    with pytest.raises(ConfigError, match=text):
        train(Bounds(low, high), Config(**SMALL), jax.random.key(0))


def test_infinite_bounds_are_welcome_without_squashing():
    assert (
        Session.of(Bounds(), Config(**SMALL | {"SQUASH": False})).groups[0].learner.head.spec.action_high[1]
        == np.inf
    )


def test_observations_may_be_flat_or_in_the_environments_shape():
    space = gymnasium.spaces.Box(-1, 1, (2, 3))
    policy = policy_for(gymnasium.spaces.Box(-1, 1, (1,)), observation_space=space)
    obs = np.random.default_rng(1).normal(size=(4, 2, 3)).astype(np.float32)
    expected = policy.get_action(obs)
    assert expected.shape == (4, 1)
    np.testing.assert_array_equal(policy.get_action(obs.reshape(4, 6)), expected)
    np.testing.assert_allclose(policy.get_action(obs[1].ravel()), expected[1], rtol=1e-6)
    np.testing.assert_allclose(policy.get_action(obs[1].tolist()), expected[1], rtol=1e-6)


def test_a_discrete_observation_enters_one_hot_from_its_start():
    policy = policy_for(gymnasium.spaces.Discrete(2), observation_space=gymnasium.spaces.Discrete(4, start=2))
    hot = np.eye(4)
    np.testing.assert_allclose(policy.value(3), by_hand(policy.model["critic"], hot[1])[0], rtol=1e-4)
    np.testing.assert_allclose(
        policy.value([2, 5]), by_hand(policy.model["critic"], hot[[0, 3]])[:, 0], rtol=1e-4
    )


@pytest.mark.parametrize("shape", [(4,), (5, 2), ()])
def test_an_observation_of_another_length_is_refused_with_both_lengths(shape):
    policy = policy_for(gymnasium.spaces.Discrete(2))
    text = rf"takes observations of shape \(3,\) or of length 3, got shape \({', '.join(map(str, shape))}"
    with pytest.raises(ValueError, match=text):
        policy.get_action(np.zeros(shape))
    with pytest.raises(ValueError, match=text):
        policy.value(np.zeros(shape))


def test_a_policy_goes_through_jit_vmap_and_scan():
    policy = policy_for(gymnasium.spaces.Box(-1, 1, (2,)), scaling=SCALING)
    obs = observations(6)
    expected = policy.get_action(obs)
    np.testing.assert_allclose(jax.jit(Policy.get_action)(policy, obs), expected, rtol=1e-5)
    np.testing.assert_allclose(jax.vmap(policy.get_action)(obs), expected, rtol=1e-5)
    _, scanned = jax.lax.scan(lambda carry, one: (carry, carry.get_action(one)), policy, obs)
    np.testing.assert_allclose(scanned, expected, rtol=1e-5)
    other = policy_for(gymnasium.spaces.Box(-1, 1, (2,)), scaling=SCALING, seed=1)
    both = jax.tree.map(lambda *leaves: jnp.stack(leaves), policy, other)
    acted = jax.vmap(Policy.get_action, in_axes=(0, None))(both, obs)
    np.testing.assert_allclose(acted, [expected, other.get_action(obs)], rtol=1e-5)


def test_act_scaling_is_what_scales_the_action():
    policy = policy_for(gymnasium.spaces.Box(-1, 1, (2,)))
    wider = policy.replace(
        act_scaling=policy.act_scaling.replace(low=jnp.array([-3.0, -3.0]), high=jnp.array([3.0, 3.0]))
    )
    np.testing.assert_allclose(
        wider.get_action(observations(4)), 3 * policy.get_action(observations(4)), rtol=1e-5
    )
    np.testing.assert_allclose(wider.act_scaling.scale(jnp.array([3.0, -1.5])), [1.0, -0.5])


def test_records_have_the_promised_fields_in_order():
    names = {
        record: [field.name for field in dataclasses.fields(record)]
        for record in (PPOResult, Policy, RunnerState)
    }
    assert names[PPOResult][:3] == ["config", "runner_state", "metrics"]
    assert names[RunnerState][:4] == ["train_state", "env_state", "last_obs", "rng"]
    assert names[Policy][:6] == [
        "act_scaling",
        "obs_scaling",
        "model",
        "hidden_activation",
        "output_activation",
        "state_independent_std",
    ]


def test_a_results_policy_acts_on_what_the_environment_shows(single, talkative):
    for run, scaled in ((single, False), (talkative, True)):
        policy = run.result.policy
        assert isinstance(policy.act_scaling, SquashState)
        assert isinstance(policy.obs_scaling, NormalizeVec if scaled else type(None))
        assert isinstance(run.result.obs_scaling, NormalizeVec if scaled else type(None))
        assert policy.get_action(np.zeros(3)).shape == ()  # the diary's actions are single numbers
        assert policy.get_action(np.zeros((7, 3))).shape == (7,)


def test_action_scaling_is_of_one_environment_also_in_a_vmapped_result(sweep):
    scaling = sweep.result.act_scaling
    np.testing.assert_array_equal(scaling.low, [-1.0])
    np.testing.assert_array_equal(scaling.high, [1.0])
    assert scaling.squash


def test_one_policy_of_a_vmapped_result_is_a_row_of_it(sweep):
    chosen = row(sweep.result, list(SWEEP).index("seed 1")).policy
    obs = observations(4)
    acted = jax.vmap(lambda result: result.policy.get_action(obs))(sweep.result)
    np.testing.assert_allclose(acted[list(SWEEP).index("seed 1")], chosen.get_action(obs), rtol=1e-5)


def test_gradients_can_be_applied_to_the_train_state(single):
    before = single.result.runner_state.train_state
    gradients = jax.tree.map(jnp.ones_like, before.params)
    after = before.apply_gradients(grads=gradients)
    assert int(after.step) == int(before.step) + 1
    moved = jax.tree.map(lambda new, old: new - old, after.params, before.params)
    # tx has no learning rate: with equal gradients Adam's direction is of one order everywhere.
    assert all(np.isfinite(leaf).all() and np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(moved))
    outputs, values = after.apply_fn(after.params, observations(2))
    assert (outputs[0].shape, values.shape) == ((2, 1), (2,))


def test_train_states_of_two_calls_have_one_structure(diary):
    def traced(seed):
        return jax.eval_shape(lambda key: train(diary, Config(**SMALL), key), jax.random.key(seed))

    first, second = traced(0).runner_state, traced(1).runner_state
    assert jax.tree.structure(first.train_state) == jax.tree.structure(second.train_state)
    assert jax.tree.structure(first) == jax.tree.structure(second)


def test_a_policy_of_a_discrete_task_has_no_action_scaling():
    policy = policy_for(gymnasium.spaces.Discrete(2))
    assert policy.act_scaling is None
