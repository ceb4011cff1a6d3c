"""Lagrangian IPPO: what it leaves of IPPO, how its multipliers move, and what it refuses."""

import jax
import numpy as np
import pytest

from dressage import envs
from dressage.errors import ConfigError, EnvironmentContractError, NonFiniteError
from dressage.learning import logged_run
from dressage.rl.ippo import IPPO
from dressage.rl.ippo_lag import IPPO_Lagrangian, trained_networks
from dressage.rl.model_io import load_models, save_models
from tests.rl.constrained_toys import PAIR, Toll

# Episodes of three steps in rollouts of two: every other rollout cuts one.
SMALL = {
    "num_envs": 2,
    "rollout_length": 2,
    "mini_batches": 2,
    "learning_epochs": 1,
    "network": {"hidden_sizes": [4]},
}
LIMITS = {"left": 0.5, "right": 1.0}
ROLLOUT = 4


def parameters(result):
    return {agent: state.params for agent, state in result.agent_states.items()}


def assert_equal(ours, theirs):
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for mine, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_array_equal(mine, other)


@pytest.fixture(scope="module")
def env():
    return Toll()


@pytest.fixture(scope="module")
def learner():
    return IPPO_Lagrangian(SMALL | {"cost_limit": LIMITS, "multiplier_learning_rate": 0.1}, seed=1)


@pytest.fixture(scope="module")
def trained(learner, env):
    return learner.train(env, 12 * ROLLOUT)


@pytest.fixture
def as_users_compile(monkeypatch):
    """Compile with the emitters that `make test` does without, so that two programs round alike."""
    options = logged_run.compiler_options

    def with_emitters(samples=0):
        return (options(samples) or {}) | {"xla_cpu_use_fusion_emitters": True}

    logged_run._programs.cache_clear()
    monkeypatch.setattr(logged_run, "compiler_options", with_emitters)
    yield
    logged_run._programs.cache_clear()


@pytest.mark.usefixtures("as_users_compile")
@pytest.mark.parametrize("price", [1.0, pytest.param(0.0, marks=pytest.mark.slow)])
def test_with_a_multiplier_of_0_it_learns_what_ippo_learns_to_the_last_bit(price):
    env = Toll(price=price)
    held = assert_learns_as_ippo(env, SMALL, 6)
    for agent in PAIR:
        assert [row["multiplier"] for row in held.metrics[agent]] == [0.0] * 6


@pytest.mark.slow  # Ten updates of real tasks, where XLA has most to fuse.
@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("safe_spread", {}),
        ("crossing", {"normalize_rewards": True, "normalize_observations": True}),
        ("coupled_budget", {"recurrent": True}),
        ("budget_bandit", {"num_envs": 3, "rollout_length": 7}),
    ],
)
def test_with_a_multiplier_of_0_tasks_are_learned_as_by_ippo_to_the_last_bit(task, options):
    sizes = {"num_envs": 16, "rollout_length": 32, "mini_batches": 4, "learning_epochs": 2}
    assert_learns_as_ippo(envs.make(task), sizes | options, 10)


def assert_learns_as_ippo(env, options, updates):
    """Assert that with multipliers held at 0 parameters and losses are IPPO's; return the result."""
    steps = updates * options["num_envs"] * options["rollout_length"]
    free = IPPO(options, seed=3).train(env, steps)
    held = IPPO_Lagrangian(options | {"cost_limit": 0.5, "multiplier_max": 0.0}, seed=3).train(env, steps)
    assert_equal(parameters(held), parameters(free))
    for agent in free.metrics:
        losses = [[row["policy_loss"] for row in result.metrics[agent]] for result in (held, free)]
        assert losses[0] == losses[1]
    return held


def episodes_of_updates(result, agent):
    """The costs of the episodes that each update's rollout finished, from the history."""
    costs = [[] for _ in result.metrics[agent]]
    for episode in result.history:
        costs[(episode["end_step"] - 1) // ROLLOUT].append(episode["agent_costs"][agent])
    return costs


def test_each_multiplier_follows_its_agents_own_episodes_and_stands_still_without_one(trained):
    multiplier, moved, still = 0.0, 0, 0
    for row, costs in zip(trained.metrics["right"], episodes_of_updates(trained, "right"), strict=True):
        assert row["finished_episodes"] == len(costs)
        if costs:
            multiplier = max(0.0, multiplier + 0.1 * (np.mean(costs) - LIMITS["right"]))
            moved += 1
        else:
            still += 1
        assert row["multiplier"] == pytest.approx(multiplier, abs=1e-6)
    assert moved == 8
    assert still == 4


def test_limits_by_name_reach_their_agents(trained):
    assert {agent: trained.metrics[agent][0]["cost_limit"] for agent in PAIR} == LIMITS


def test_the_raw_cost_of_episodes_is_reported_besides(trained):
    for row, costs in zip(trained.metrics["right"], episodes_of_updates(trained, "right"), strict=True):
        if costs:
            assert row["episode_cost"] == pytest.approx(np.mean(costs), abs=1e-6)
            assert row["cost_estimate"] == pytest.approx(np.mean(costs), abs=1e-6)


def test_multipliers_trackers_and_cost_critic_are_in_what_is_resumed(trained, env, learner, tmp_path):
    options = SMALL | {"cost_limit": LIMITS, "multiplier_learning_rate": 0.1}
    half = IPPO_Lagrangian(options, seed=1).train(env, 5 * ROLLOUT)
    half.save(tmp_path)
    resumed = IPPO_Lagrangian(options, seed=1).train(env, 7 * ROLLOUT, resume_from=tmp_path)
    assert_equal(resumed.agent_states, trained.agent_states)
    assert resumed.metrics["right"][-1]["multiplier"] == trained.metrics["right"][-1]["multiplier"]


def test_trained_networks_are_what_acts(trained, env, tmp_path):
    network = trained_networks(trained)["left"]["actor_critic_with_cost"]
    seen = np.array([[1.0, 0.0], [0.0, 1.0]], np.float32)
    (logits, _), values, _ = network(seen)
    (probs,) = trained.policies["left"].component_action_probs(seen)
    np.testing.assert_allclose(jax.nn.softmax(logits), probs, rtol=1e-5)
    np.testing.assert_allclose(values, trained.policies["left"].value(seen), rtol=1e-5)
    save_models(env, trained_networks(trained), tmp_path)
    loaded = load_models(tmp_path, env)["left"]["actor_critic_with_cost"]
    np.testing.assert_array_equal(loaded(seen)[2], network(seen)[2])


def test_a_cost_that_is_not_finite_stops_training_and_moves_no_multiplier():
    learner = IPPO_Lagrangian(SMALL | {"cost_limit": 0.5})
    with pytest.raises(NonFiniteError, match=r"The cost of agent 'left' is not finite: .* step 1"):
        learner.train(Toll(spoiled=1), 4 * ROLLOUT)
    states = learner._training.result().agent_states
    assert [float(state.constraint.multiplier) for state in states.values()] == [0.0, 0.0]


@pytest.mark.slow
def test_a_cost_under_another_key_is_found_by_its_name(env, trained):
    options = SMALL | {"cost_limit": LIMITS, "multiplier_learning_rate": 0.1, "cost_key": "toll"}
    named = IPPO_Lagrangian(options, seed=1).train(Toll(key="toll"), 12 * ROLLOUT)
    assert_equal(parameters(named), parameters(trained))


def test_a_missing_cost_is_refused_by_agent_and_key():
    with pytest.raises(EnvironmentContractError, match=r"agent 'left' has no cost 'cost'; it has \['toll'\]"):
        IPPO_Lagrangian(SMALL | {"cost_limit": 1.0}).train(Toll(key="toll"), ROLLOUT)


@pytest.mark.slow
def test_a_missing_cost_may_have_a_default():
    learner = IPPO_Lagrangian(SMALL | {"cost_limit": 1.0, "cost_default": 0.25})
    result = learner.train(Toll(key="toll"), 3 * ROLLOUT)
    assert result.history[0]["agent_costs"] == {"left": 0.5, "right": 0.75}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "needs the option 'cost_limit': what an episode may cost on average"),
        (
            {"cost_limit": -1.0},
            "'cost_limit' must be a finite number, or a mapping .* >= 0 or None, got -1.0",
        ),
        ({"cost_limit": {}}, "'cost_limit' must be"),
        ({"cost_limit": {"left": "two"}}, "'cost_limit' must be"),
        ({"cost_limit": 1.0, "multiplier_lr": 0.1}, "no option 'multiplier_lr'. Did you mean 'multiplier_"),
        ({"cost_limit": 1.0, "share_parameters": True}, "no option 'share_parameters'"),
        ({"cost_limit": 1.0, "shaping_coef": 1.0}, "no option 'shaping_coef'"),
        ({"cost_limit": 1.0, "multiplier_max": 1.0, "multiplier_min": 2.0}, "'multiplier_min' is 2, above"),
        ({"cost_limit": 1.0, "multiplier_max": 1.0, "multiplier_init": 2.0}, "'multiplier_init' is 2, above"),
        ({"cost_limit": 1.0, "multiplier_min": -1.0}, "'multiplier_min' must be"),
        ({"cost_limit": 1.0, "multiplier_learning_rate": -1.0}, "'multiplier_learning_rate' must be"),
        ({"cost_limit": 1.0, "multiplier_pid": (0.1, 0.1)}, "'multiplier_pid' must be three gains"),
        ({"cost_limit": 1.0, "multiplier_pid": (0.1, -0.1, 0.0)}, "'multiplier_pid' must be a sequence of"),
        ({"cost_limit": 1.0, "multiplier_pid": None}, "by 'multiplier_pid' or by 'multiplier_learning_rate'"),
        ({"cost_limit": 1.0, "cost_key": ""}, "'cost_key' must be a text that is not empty"),
    ],
)
def test_options_that_say_nothing_lawful_are_refused(options, text):
    with pytest.raises(ConfigError, match=text):
        IPPO_Lagrangian(options)


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        ({"left": 1.0, "rihgt": 1.0}, "names 'rihgt', which is no agent .* Did you mean 'right'"),
        ({"left": 1.0}, "has no limit for 'right'"),
    ],
)
def test_limits_must_name_every_agent_and_no_other(env, limit, text):
    with pytest.raises(ConfigError, match=text):
        IPPO_Lagrangian(SMALL | {"cost_limit": limit}).train(env, ROLLOUT)


def test_a_learning_rate_alone_turns_control_off():
    assert IPPO_Lagrangian({"cost_limit": 1.0}).config["multiplier_pid"] == (0.5, 0.05, 0.0)
    assert (
        IPPO_Lagrangian({"cost_limit": 1.0, "multiplier_learning_rate": 0.1}).config["multiplier_pid"] is None
    )


@pytest.mark.slow
def test_unlike_agents_seeds_and_a_shorter_last_rollout_go_together():
    """Groups of one, a last rollout of 10 of 32 steps, and two seeds at once against one of them alone."""
    env = envs.make("coupled_budget")
    options = {"cost_limit": 2.5, "num_envs": 4, "rollout_length": 8, "network": {"hidden_sizes": [4]}}
    both = IPPO_Lagrangian(options).train_seeds(env, 4 * 32 + 10, (5, 6))
    alone = IPPO_Lagrangian(options, seed=6).train(env, 4 * 32 + 10)
    assert both[1].progress == alone.progress
    for ours, theirs in zip(
        jax.tree.leaves(parameters(both[1])), jax.tree.leaves(parameters(alone)), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_a_host_environment_gives_the_same_multipliers(env):
    """`Toll` starts every episode alike, so that both drivers see the same steps."""
    options = SMALL | {"cost_limit": LIMITS, "multiplier_learning_rate": 0.1}
    compiled = IPPO_Lagrangian(options, seed=1).train(env, 12 * ROLLOUT)
    host = IPPO_Lagrangian(options, seed=1).train(lambda: envs.to_parallel_env(env), 12 * ROLLOUT)
    for agent in PAIR:
        ours, theirs = ([row["multiplier"] for row in one.metrics[agent]] for one in (compiled, host))
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
