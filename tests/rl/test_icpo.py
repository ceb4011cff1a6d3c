"""CPO and ICPO: what shaping adds, what evaluation leaves alone, and what they refuse."""

import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage import envs
from dressage.equations.trust_region import StepCase
from dressage.errors import ConfigError
from dressage.networks import Actor, Critic
from dressage.rl.icpo import CPO, ICPO, CategoricalActor, ValueNetwork, trained_networks
from dressage.rl.model_io import load_models, save_models
from tests.rl.constrained_toys import PAIR, Toll

SMALL = {
    "num_envs": 2,
    "rollout_length": 8,
    "mini_batches": 2,
    "learning_epochs": 1,
    "fisher_samples": 8,
    "network": {"hidden_sizes": [4]},
}
HELD = SMALL | {"cost_limit": {"left": 0.5, "right": 10.0}}
SHAPED = {"shaping_horizon": 2, "shaping_steps": 3, "shaping_hidden_size": 4, "cost_gae_lambda": 0.95}
ROLLOUT = 16


def assert_equal(ours, theirs):
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.fixture(scope="module")
def env():
    return Toll()


@pytest.fixture(scope="module")
def trained(env):
    return CPO(HELD, seed=1).train(env, 6 * ROLLOUT)


@pytest.fixture(scope="module")
def shaped(env):
    return ICPO(HELD | SHAPED, seed=1).train(env, 6 * ROLLOUT)


def test_shaping_off_is_cpo_to_the_last_bit(env, trained):
    off = ICPO(HELD | SHAPED | {"shaping_coef": 0.0}, seed=1).train(env, 6 * ROLLOUT)
    assert_equal(off.agent_states, trained.agent_states)


def test_each_agent_takes_steps_of_its_own_case(trained):
    """`left` starts at twice its limit, `right` far below its own."""
    left, right = (trained.metrics[agent][0] for agent in PAIR)
    assert left["cost_excess"] > 0
    assert left["case"] in (StepCase.RECOVERY, StepCase.ACTIVE)
    assert left["cost_change"] < 0
    assert right["cost_excess"] < 0
    assert right["case"] == StepCase.UNCONSTRAINED
    assert right["reward_gain"] > 0
    assert all(row["kl"] <= 0.01 for agent in PAIR for row in trained.metrics[agent])


def test_the_excess_is_in_cost_a_step(trained):
    """Episodes of `left` last two steps, those of `right` three."""
    for agent, limit, length in (("left", 0.5, 2), ("right", 10.0, 3)):
        for row in trained.metrics[agent]:
            assert row["cost_excess"] == pytest.approx((row["cost_estimate"] - limit) / length, abs=1e-6)


def test_evaluation_changes_nothing_of_training(env, trained):
    learner = CPO(HELD, seed=1)
    learner.train(env, 3 * ROLLOUT)
    results = learner.evaluate(env, 5)
    assert results["left"]["lengths"].tolist() == [2] * 5
    assert_equal(learner.train(env, 3 * ROLLOUT).agent_states, trained.agent_states)


def test_everything_that_a_limit_needs_is_in_what_is_resumed(env, shaped, tmp_path):
    ICPO(HELD | SHAPED, seed=1).train(env, 2 * ROLLOUT).save(tmp_path)
    resumed = ICPO(HELD | SHAPED, seed=1).train(env, 4 * ROLLOUT, resume_from=tmp_path)
    assert_equal(resumed.agent_states, shaped.agent_states)


def test_shaped_costs_drive_the_budget_and_raw_costs_stand_beside(shaped):
    for row in shaped.metrics["left"]:
        assert row["shaped_cost_estimate"] > row["cost_estimate"]
        assert row["cost_estimate"] == pytest.approx(row["episode_cost"], abs=1e-6)
        assert row["cost_excess"] == pytest.approx((row["shaped_cost_estimate"] - 0.5) / 2, abs=1e-6)


@pytest.mark.parametrize(
    ("learner", "options", "text"),
    [
        (CPO, None, "CPO needs the option 'cost_limit'"),
        (ICPO, {}, "ICPO needs the option 'cost_limit'"),
        (
            CPO,
            {"cost_limit": 1.0, "shaping_coef": 1.0},
            "CPO has no option 'shaping_coef': costs are not shaped",
        ),
        (CPO, {"cost_limit": 1.0, "clip_eps": 0.1}, "CPO has no option 'clip_eps'"),
        (ICPO, {"cost_limit": 1.0, "recurrent": True}, "ICPO has no option 'recurrent'"),
        (ICPO, {"cost_limit": 1.0, "target_lk": 0.1}, "no option 'target_lk'. Did you mean 'target_kl'"),
        (ICPO, {"cost_limit": 1.0, "line_search_decay": 1.0}, "'line_search_decay' must be .* < 1, got 1.0"),
        (ICPO, {"cost_limit": 1.0, "target_kl": None}, "'target_kl' must be a finite number > 0, got None"),
    ],
)
def test_options_that_say_nothing_lawful_are_refused(learner, options, text):
    with pytest.raises(ConfigError, match=text):
        learner(options)


def test_ten_refused_line_searches_in_a_row_are_told_once():
    learner = ICPO({"cost_limit": 1.0})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for count in range(13):
            learner.watch({"a": {"rejections_in_a_row": float(count)}})
    assert len(caught) == 1
    assert "the last 10 updates of agent 'a' moved no policy" in str(caught[0].message)


def test_parameters_of_a_trained_actor_and_critic_fit_the_plain_networks():
    sizes = {"hidden_sizes": (4,), "activation": "tanh"}
    actor, critic = CategoricalActor(3, 2, **sizes), ValueNetwork(3, **sizes)
    seen = jax.random.normal(jax.random.key(0), (5, 3))
    theirs = Actor(2, 0, True, **sizes), Critic(**sizes)
    variables = [network.init(jax.random.key(1), seen) for network in theirs]
    np.testing.assert_array_equal(actor.apply(variables[0], seen), theirs[0].apply(variables[0], seen)[0])
    np.testing.assert_array_equal(critic.apply(variables[1], seen), theirs[1].apply(variables[1], seen))
    with pytest.raises(ValueError, match=r"takes observations of length 3, got shape \(5, 4\)"):
        actor.bind(variables[0])(jnp.zeros((5, 4)))


def test_trained_networks_are_what_acts_and_survive_a_folder(env, trained, tmp_path):
    networks = trained_networks(trained)
    seen = np.array([[1.0, 0.0], [0.0, 1.0]], np.float32)
    (probs,) = trained.policies["left"].component_action_probs(seen)
    np.testing.assert_allclose(jax.nn.softmax(networks["left"]["actor"](seen)), probs, rtol=1e-5)
    np.testing.assert_allclose(
        networks["left"]["critic"](seen), trained.policies["left"].value(seen), rtol=1e-5
    )
    save_models(env, networks, tmp_path)
    loaded = load_models(tmp_path, env)
    for name in ("actor", "critic", "cost_critic"):
        np.testing.assert_array_equal(loaded["right"][name](seen), networks["right"][name](seen))


@pytest.mark.slow
@pytest.mark.parametrize("learner", [CPO, ICPO])
def test_continuous_agents_learn_in_one_group(learner):
    env = envs.make("crossing", num_agents=2, max_steps=8)
    result = learner(SMALL | {"cost_limit": 1.0}, seed=0).train(env, 5 * ROLLOUT)
    rows = [row for agent in env.possible_agents for row in result.metrics[agent]]
    assert len(rows) == 10
    assert all(row["finite"] == 1 for row in rows)
    assert any(row["accepted"] for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("learner", [CPO, ICPO])
def test_a_host_environment_gives_the_same_steps(env, learner):
    """`Toll` starts every episode alike, so that both drivers see the same steps."""
    options = HELD | (SHAPED if learner is ICPO else {})
    compiled = learner(options, seed=1).train(env, 6 * ROLLOUT)
    host = learner(options, seed=1).train(lambda: envs.to_parallel_env(env), 6 * ROLLOUT)
    for agent, name in itertools.product(PAIR, ("case", "accepted", "cost_estimate", "cost_excess", "kl")):
        ours, theirs = ([row[name] for row in one.metrics[agent]] for one in (compiled, host))
        np.testing.assert_allclose(ours, theirs, atol=1e-5, err_msg=name)


@pytest.mark.slow
def test_an_agent_with_a_shields_parameter_learns_under_a_limit():
    env = envs.make("shielded_shortcut_cmdp", max_steps=8)
    result = CPO(SMALL | {"cost_limit": 1.0}, seed=0).train(env, 4 * ROLLOUT)
    rows = result.metrics["agent"]
    assert all(row["finite"] == 1 and row["kl"] <= 0.01 for row in rows)
    assert any(row["accepted"] for row in rows)
    assert all(0 <= row["shield_rate"] <= 1 for row in rows)
    action = result.policies["agent"].act(np.zeros(12, np.float32))
    assert env.agents["agent"].action_space.contains(action)
