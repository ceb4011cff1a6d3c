"""One update of the proximal learner, against an update written straight down with stock optax."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.equations.statistics import RunningMoments
from dressage.learning import minibatches
from dressage.learning.minibatches import minibatch_indices
from dressage.learning.proximal import METRIC_NAMES, ProximalLearner
from dressage.learning.records import Experience, Observed, Outcome
from dressage.learning.specs import AgentSpec
from tests.learning.tiny import CONTINUOUS, DISCRETE, hyperparameters, learner
from tests.oracles.plain_proximal import PlainProximal, Settings
from tests.oracles.plain_rollouts import RewardScaler

STEPS, COPIES, EPOCHS, MINIBATCHES, TOTAL = 6, 4, 2, 5, 30
FACTORED = AgentSpec("agent", 3, 5, "multi_discrete", (2, 3), (2,), (0, 0))

learn = jax.jit(ProximalLearner.learn)
init = jax.jit(ProximalLearner.init, static_argnums=2)


@jax.jit
def act(one, state, observed, key):
    outputs = one.step_policy(state, observed)[1]
    noise = one.head.draw_noise(key, (STEPS, COPIES))
    return outputs, one.head.distribution(outputs).sample_from(noise)


def collect(one, state, seed, invalid_rows=False):
    """Random observations, the policy's own actions, random rewards and ends."""
    generator = np.random.default_rng(seed)
    shape = (STEPS, COPIES)
    features, final_features = generator.normal(3.0, 2.0, (2, *shape, 3)).astype(np.float32)
    observed = Observed(jnp.asarray(features))
    outputs, actions = act(one, state, observed, jax.random.key(seed))
    terminated = generator.random(shape) < 0.15
    ends = terminated | (generator.random(shape) < 0.15)
    # Inside an episode a step leads to what the next row saw.
    final_features[:-1] = np.where(ends[:-1, :, None], final_features[:-1], features[1:])
    valid = np.concatenate([np.ones((1, COPIES), bool), ~ends[:-1]]) if invalid_rows else None
    rewards = generator.normal(1.0, 2.0, shape).astype(np.float32)
    zeros = np.zeros(shape, np.float32)
    outcome = Outcome(None, final_features, rewards, terminated, ends, zeros, zeros.astype(np.int32), valid)
    return Experience(observed, outputs, actions, outcome)


def as_rollout(experience):
    outcome = experience.outcome
    rollout = {
        "features": np.asarray(experience.observed.features),
        "final_features": outcome.final_features,
        "actions": np.asarray(experience.actions),
        "rewards": outcome.rewards,
        "terminated": outcome.terminated,
        "ends": outcome.episode_ends,
    }
    return rollout if outcome.valid is None else rollout | {"valid": outcome.valid}


def plain_parameters(params):
    """Flax's tree as lists of layers."""
    actor, critic = params["params"]["actor"], params["params"]["critic"]
    towers = {
        name: [(tower[f"Dense_{i}"]["kernel"], tower[f"Dense_{i}"]["bias"]) for i in range(2)]
        for name, tower in (("actor", actor), ("critic", critic))
    }
    return towers | {"log_std": actor.get("log_std")}


CASES = {
    "discrete": (DISCRETE, {"clip_value_loss": True}, {}),
    "factored, normalised, with rows that are no samples": (
        FACTORED,
        {"normalize_observations": True, "normalize_rewards": True},
        {"invalid_rows": True},
    ),
    "Gaussian, normalised, annealed, plain value loss": (
        CONTINUOUS,
        {"normalize_observations": True, "normalize_rewards": True, "anneal": True, "clip_value_loss": False},
        {},
    ),
    "Gaussian, deviation of the state": (
        CONTINUOUS,
        {"state_independent_std": False},
        {"invalid_rows": True},
    ),
}


@pytest.fixture(scope="module", params=CASES.values(), ids=CASES.keys())
def two_updates(request):
    """Ours and the oracle's after each of two updates, by a rate large enough to reach the clips."""
    spec, switches, rows = request.param
    switches = {"clip_value_loss": True, "anneal": False, **switches}
    one = learner(
        spec,
        hyper=hyperparameters(learning_rate=1e-2),
        epochs=EPOCHS,
        minibatches=MINIBATCHES,
        total_optimizer_steps=TOTAL,
        **switches,
    )
    state = init(one, jax.random.key(0), COPIES)
    plain = PlainProximal(
        Settings(
            nvec=spec.action_nvec,
            continuous=spec.continuous_dim,
            clip_value_loss=switches["clip_value_loss"],
            anneal_over=TOTAL if switches["anneal"] else None,
        ),
        plain_parameters(state.params),
        observation_rows=[] if one.normalize_observations else None,
        reward_scaler=RewardScaler(COPIES, 0.9) if one.normalize_rewards else None,
    )
    history = []
    for seed in (1, 2):
        experience = collect(one, state, seed, **rows)
        key = jax.random.key(seed)
        state, metrics = learn(one, state, experience, key)
        plain.update(as_rollout(experience), *minibatch_indices(key, STEPS * COPIES, EPOCHS, MINIBATCHES))
        history.append((state, metrics, plain.params, list(plain.losses)))
    return history


def test_an_update_equals_the_plain_one(two_updates):
    for state, _, expected, _ in two_updates:
        ours = jax.tree.leaves(plain_parameters(state.params))
        theirs = jax.tree.leaves(expected)
        for mine, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(mine, other, atol=1e-5, rtol=1e-5)


def test_updates_move_every_parameter(two_updates):
    (first, *_), (second, *_) = two_updates
    for before, after in zip(jax.tree.leaves(first.params), jax.tree.leaves(second.params), strict=True):
        assert np.abs(np.asarray(after) - np.asarray(before)).max() > 1e-4


def test_the_loss_reported_is_the_mean_over_minibatches(two_updates):
    applications = EPOCHS * MINIBATCHES
    for update, (_, metrics, _, losses) in enumerate(two_updates):
        own = losses[update * applications : (update + 1) * applications]
        assert metrics["loss"] == pytest.approx(np.mean(own), rel=1e-4, abs=1e-5)
        assert set(metrics) == set(METRIC_NAMES)
        assert metrics["skipped_minibatches"] == 0


def test_the_case_reaches_the_clip_of_the_ratio(two_updates):
    assert max(metrics["clip_fraction"] for _, metrics, _, _ in two_updates) > 0.02


def test_optimizer_steps_count_every_application(two_updates):
    assert [int(state.optimizer_steps) for state, *_ in two_updates] == [10, 20]


@pytest.fixture(scope="module")
def discrete():
    """The learner of the first case, so that its program is compiled already."""
    one = learner(
        DISCRETE,
        hyper=hyperparameters(learning_rate=1e-2),
        epochs=EPOCHS,
        minibatches=MINIBATCHES,
        total_optimizer_steps=TOTAL,
        clip_value_loss=True,
        anneal=False,
    )
    state = init(one, jax.random.key(0), COPIES)
    state, _ = learn(one, state, collect(one, state, 1), jax.random.key(1))
    return one, state


def assert_bit_equal(ours, theirs):
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_array_equal(mine, other)


def test_a_loss_that_is_not_finite_changes_nothing_and_is_counted(discrete):
    one, state = discrete
    broken = one.replace(hyper=hyperparameters(learning_rate=1e-2, entropy_coef=np.nan))
    after, metrics = learn(broken, state, collect(one, state, 2), jax.random.key(2))
    assert_bit_equal(after.params, state.params)
    assert_bit_equal(after.opt_state, state.opt_state)
    assert metrics["skipped_minibatches"] == 1.0
    assert int(after.optimizer_steps) == int(state.optimizer_steps) + EPOCHS * MINIBATCHES


def test_a_finite_loss_with_an_infinite_gradient_changes_nothing_either(discrete):
    one, state = discrete
    # 1e25 squared is beyond float32: the norm is infinite though the loss is not.
    steep = one.replace(hyper=hyperparameters(learning_rate=1e-2, value_coef=1e25))
    after, metrics = learn(steep, state, collect(one, state, 2), jax.random.key(2))
    assert np.isfinite(metrics["loss"])
    assert metrics["skipped_minibatches"] == 1.0
    assert_bit_equal(after.params, state.params)


def test_one_broken_sample_skips_only_the_minibatches_that_hold_it(discrete):
    one, state = discrete
    experience = collect(one, state, 2)
    indices, weights = minibatch_indices(jax.random.key(2), STEPS * COPIES, EPOCHS, MINIBATCHES)
    padding = set(np.asarray(indices)[np.asarray(weights) == 0].tolist())
    sample = next(index for index in range(STEPS * COPIES) if index not in padding)
    logits = np.array(experience.policy_outputs[0])
    logits.reshape(-1, 4)[sample] = np.nan
    after, metrics = learn(one, state, experience.replace(policy_outputs=(logits, None)), jax.random.key(2))
    assert metrics["skipped_minibatches"] == pytest.approx(1 / MINIBATCHES)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after))
    assert int(after.opt_state.count) == int(state.opt_state.count) + EPOCHS * (MINIBATCHES - 1)


def test_what_stands_in_rows_that_are_no_samples_does_not_matter():
    one = learner(
        FACTORED,
        hyper=hyperparameters(learning_rate=1e-2),
        epochs=EPOCHS,
        minibatches=MINIBATCHES,
        total_optimizer_steps=TOTAL,
        clip_value_loss=True,
        anneal=False,
        normalize_observations=True,
        normalize_rewards=True,
    )
    state = init(one, jax.random.key(0), COPIES)
    experience = collect(one, state, 1, invalid_rows=True)
    invalid = ~experience.outcome.valid
    assert invalid.sum() > 2
    features = np.array(experience.observed.features)
    rewards, final = np.array(experience.outcome.rewards), np.array(experience.outcome.final_features)
    features[invalid], final[invalid], rewards[invalid] = -77.0, 55.0, 1e6
    garbage = experience.replace(
        observed=Observed(jnp.asarray(features)),
        outcome=experience.outcome.replace(rewards=rewards, final_features=final),
    )
    clean, garbled = (learn(one, state, rows, jax.random.key(1))[0] for rows in (experience, garbage))
    assert_bit_equal(garbled, clean)


@pytest.fixture(scope="module")
def one_application():
    """A Gaussian learner whose update is one application of the optimiser, annealed over 128."""
    return learner(
        CONTINUOUS,
        hyper=hyperparameters(learning_rate=3e-4),
        epochs=1,
        minibatches=1,
        total_optimizer_steps=128,
        anneal=True,
        normalize_observations=True,
    )


def far_from_standard(one):
    """A state whose observations have mean 50 and variance 400."""
    moments = RunningMoments(jnp.float32(1000), jnp.full(3, 50.0), jnp.full(3, 400.0))
    return init(one, jax.random.key(3), COPIES).replace(observation_moments=moments)


def test_the_ratio_is_one_before_the_first_step_whatever_the_statistics(one_application):
    state = far_from_standard(one_application)
    _, metrics = learn(one_application, state, collect(one_application, state, 4), jax.random.key(4))
    # The statistics move with this rollout (mean 3 against 50); the log-probabilities must not.
    assert metrics["approx_kl"] == pytest.approx(0, abs=1e-9)
    assert metrics["clip_fraction"] == 0
    assert metrics["policy_loss"] == pytest.approx(0, abs=1e-6)


def test_statistics_include_the_rollout_only_afterwards(one_application):
    state = far_from_standard(one_application)
    experience = collect(one_application, state, 4)
    after, _ = learn(one_application, state, experience, jax.random.key(4))
    rows = np.asarray(experience.observed.features, np.float64).reshape(-1, 3)
    count = 1000 + len(rows)
    mean = (1000 * 50.0 + rows.sum(0)) / count
    square = (1000 * (400.0 + 50.0**2) + (rows**2).sum(0)) / count
    assert after.observation_moments.count == count
    np.testing.assert_allclose(after.observation_moments.mean, mean, rtol=1e-5)
    np.testing.assert_allclose(after.observation_moments.var, square - mean**2, rtol=1e-4)


@pytest.mark.parametrize(
    ("step", "rate"), [(0, 3.0e-4), (1, 2.9765625e-4), (64, 1.5e-4), (127, 2.34375e-6), (128, 0.0)]
)
def test_the_annealed_rate_of_each_step_is_the_one_applied_and_reported(one_application, step, rate):
    state = far_from_standard(one_application).replace(optimizer_steps=jnp.int32(step))
    after, metrics = learn(one_application, state, collect(one_application, state, 4), jax.random.key(4))
    assert metrics["learning_rate"] == pytest.approx(rate, rel=1e-5, abs=1e-12)
    # Adam's first step moves each parameter by rate * g / (|g| + 1e-5); the largest gradients are near 0.1.
    moved = max(
        float(np.abs(np.asarray(new, np.float64) - old).max())
        for new, old in zip(jax.tree.leaves(after.params), jax.tree.leaves(state.params), strict=True)
    )
    assert moved == pytest.approx(rate, rel=5e-3, abs=1e-9)


def test_the_state_holds_the_rate_so_that_a_resumed_run_keeps_it(one_application):
    state = far_from_standard(one_application).replace(
        learning_rate=jnp.float32(1e-4), optimizer_steps=jnp.int32(64)
    )
    after, metrics = learn(one_application, state, collect(one_application, state, 4), jax.random.key(4))
    assert metrics["learning_rate"] == pytest.approx(0.5e-4, rel=1e-5)
    assert after.learning_rate == jnp.float32(1e-4)
    assert int(after.optimizer_steps) == 65


def test_a_perfect_critic_explains_all_and_a_constant_one_nothing(one_application):
    state = far_from_standard(one_application)
    experience = collect(one_application, state, 4)
    ended = np.ones((STEPS, COPIES), bool)
    values = one_application.network.apply(
        state.params, one_application.normalized(state, experience.observed.features), method="value"
    )
    outcome = experience.outcome.replace(rewards=np.asarray(values), terminated=ended, episode_ends=ended)
    _, perfect = learn(one_application, state, experience.replace(outcome=outcome), jax.random.key(4))
    assert perfect["explained_variance"] == pytest.approx(1.0, abs=1e-5)
    zero = state.replace(params=jax.tree.map(jnp.zeros_like, state.params))
    _, constant = learn(one_application, zero, experience.replace(outcome=outcome), jax.random.key(4))
    assert constant["explained_variance"] == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("invalid_rows", [False, True])
def test_a_minibatch_taken_in_parts_moves_parameters_as_the_whole_does(monkeypatch, invalid_rows):
    one = learner(DISCRETE, epochs=2, minibatches=1)
    state = init(one, jax.random.key(0), COPIES)
    experience = collect(one, state, 5, invalid_rows=invalid_rows)
    whole, metrics = jax.jit(lambda *given: ProximalLearner.learn(*given))(
        one, state, experience, jax.random.key(2)
    )
    monkeypatch.setattr(minibatches, "PART", STEPS * COPIES // 4)
    monkeypatch.setattr(minibatches, "LEAST", 1)
    assert minibatches.count_parts(STEPS * COPIES) == 4
    cut, cut_metrics = jax.jit(lambda *given: ProximalLearner.learn(*given))(
        one, state, experience, jax.random.key(2)
    )
    for ours, theirs in zip(jax.tree.leaves(cut.params), jax.tree.leaves(whole.params), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    for name, value in metrics.items():
        np.testing.assert_allclose(cut_metrics[name], value, rtol=1e-4, atol=1e-6)
