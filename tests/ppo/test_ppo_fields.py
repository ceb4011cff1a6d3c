"""Every field of the configuration changes something, and the right thing."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.envs import make
from dressage.learning import scan_driver
from dressage.ppo import Config
from dressage.ppo.config import FLOATS
from dressage.ppo.session import Session
from tests.oracles.plain_returns import gae_by_definition
from tests.ppo.conftest import SWEEP, TALKATIVE
from tests.ppo.small_tasks import SMALL, collect, experience_of, flat, params_of, row

ROWS = list(SWEEP)
KERNEL_VARIANCES = {  # of a 64 x 64 kernel, by hand
    "xavier_uniform": 1 / 64,
    "xavier_normal": 1 / 64,
    "lecun_uniform": 1 / 64,
    "lecun_normal": 1 / 64,
    "kaiming_uniform": 2 / 64,
    "kaiming_normal": 2 / 64,
    "orthogonal": 2 / 64,
}


def of_row(run, name):
    return row(run.result, ROWS.index(name))


def initial_agent(env, config, seed=0):
    session = Session.of(env, config)
    return scan_driver.init(session.env, session.groups, jax.random.key(seed)).agents[0]


@pytest.mark.parametrize("name", FLOATS)
def test_every_float_changes_what_is_learned(sweep, name):
    assert np.any(params_of(of_row(sweep, name)) != params_of(of_row(sweep, "base")))


@pytest.mark.parametrize("name", FLOATS)
def test_the_result_carries_the_float_that_ran(sweep, name):
    assert float(getattr(of_row(sweep, name).config, name)) == pytest.approx(SWEEP[name][0][name])


def test_LR_is_the_rate_that_the_metrics_report(sweep):
    np.testing.assert_allclose(of_row(sweep, "LR").metrics["train/learning_rate"], 1e-4, rtol=1e-6)
    np.testing.assert_allclose(of_row(sweep, "base").metrics["train/learning_rate"], 1e-2, rtol=1e-6)


def test_CLIP_EPS_decides_which_samples_count_as_clipped(sweep):
    narrow, base = of_row(sweep, "CLIP_EPS").metrics, of_row(sweep, "base").metrics
    assert np.all(narrow["train/clip_fraction"] > 0.5)
    assert np.all(base["train/clip_fraction"] < 0.5)


def test_ENT_COEF_widens_the_policy(sweep):
    wide, base = of_row(sweep, "ENT_COEF").metrics, of_row(sweep, "base").metrics
    assert wide["train/entropy"][-1] > base["train/entropy"][-1]


def test_a_VF_COEF_of_0_leaves_the_critic_as_it_was_drawn(sweep, diary):
    drawn = initial_agent(diary, Config(**SMALL)).params["params"]
    trained = of_row(sweep, "VF_COEF").runner_state.train_state.params["params"]
    np.testing.assert_allclose(flat(trained["critic"]), flat(drawn["critic"]), rtol=1e-6)
    assert np.any(flat(trained["actor"]) != flat(drawn["actor"]))


def test_a_tiny_MAX_GRAD_NORM_keeps_parameters_nearly_where_they_were(sweep, diary):
    drawn = flat(initial_agent(diary, Config(**SMALL)).params)
    moved = {name: np.abs(params_of(of_row(sweep, name)) - drawn).max() for name in ("base", "MAX_GRAD_NORM")}
    assert moved["MAX_GRAD_NORM"] < 0.2 * moved["base"]  # Adam divides by its epsilon of 1e-5 then


@pytest.mark.parametrize(
    ("gamma", "gae_lambda"), [(0.9, 0.8), (0.5, 0.8), (0.9, 0.1), (1.0, 1.0), (0.0, 0.0)]
)
def test_GAMMA_and_GAE_LAMBDA_are_those_of_the_targets(diary_rollout, gamma, gae_lambda):
    session, agent, rollout = diary_rollout
    learner = session.groups[0].learner
    hyper = learner.hyper.replace(gamma=jnp.float32(gamma), gae_lambda=jnp.float32(gae_lambda))
    batch, _ = learner.replace(hyper=hyper).prepare(agent, experience_of(rollout))
    outcome = rollout.outcome
    values = learner.network.apply(agent.params, rollout.observed.features, method="value")
    following = learner.network.apply(agent.params, outcome.final_features, method="value")
    _, returns = gae_by_definition(
        outcome.rewards, outcome.terminated, outcome.episode_ends, values, following, gamma, gae_lambda
    )
    np.testing.assert_allclose(np.reshape(batch.returns, returns.shape), returns, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def diary_rollout(diary):
    return collect(diary, Config(**SMALL | {"FIXED_INIT": False}), steps=20)


def test_NUM_ENVS_and_NUM_STEPS_are_the_size_of_a_rollout(diary_rollout, single, talkative):
    assert diary_rollout[2].outcome.rewards.shape == (20, 4)
    assert single.result.runner_state.last_obs.shape == (4, 3)
    assert len(np.unique(single.result.runner_state.last_obs[:, 0])) == 4


def test_TOTAL_TIMESTEPS_is_rounded_up_and_reported(sweep, talkative):
    np.testing.assert_array_equal(of_row(sweep, "base").metrics["train/total_steps"], [64, 160])
    np.testing.assert_array_equal(
        talkative.result.metrics["train/total_steps"], [20, 40, 60]
    )  # 41 were asked


def test_UPDATE_EPOCHS_and_NUM_MINIBATCHES_are_how_often_the_optimiser_steps(single, talkative):
    assert int(single.result.runner_state.train_state.step) == 5 * 2 * 3
    assert int(talkative.result.runner_state.train_state.step) == 3 * 3 * 2


@pytest.mark.parametrize(("layers", "units"), [(0, 5), (1, 5), (3, 7)])
def test_NUM_HIDDEN_LAYERS_and_NUM_HIDDEN_UNITS_shape_both_networks(diary, layers, units):
    params = initial_agent(diary, Config(NUM_HIDDEN_LAYERS=layers, NUM_HIDDEN_UNITS=units)).params["params"]
    sizes = [3] + [units] * layers + [1]
    expected = {f"Dense_{i}": (sizes[i], sizes[i + 1]) for i in range(layers + 1)}
    for network in ("actor", "critic"):
        shapes = {name: layer["kernel"].shape for name, layer in params[network].items() if name != "log_std"}
        assert shapes == expected


@pytest.mark.parametrize("name", KERNEL_VARIANCES)
def test_KERNEL_INIT_TYPE_draws_kernels_of_its_own_variance(name):
    params = initial_agent(make("cartpole"), Config(KERNEL_INIT_TYPE=name)).params["params"]
    for network in ("actor", "critic"):
        kernel = np.asarray(params[network]["Dense_1"]["kernel"], np.float64)
        assert kernel.var() == pytest.approx(KERNEL_VARIANCES[name], rel=0.1)
        bound = np.sqrt(3 * KERNEL_VARIANCES[name])
        assert (np.abs(kernel).max() <= bound) == name.endswith("uniform")
    if name == "orthogonal":
        np.testing.assert_allclose(kernel.T @ kernel, 2 * np.eye(64), atol=1e-5)


def test_the_policys_last_layer_starts_a_hundredth_as_large():
    params = initial_agent(make("cartpole"), Config()).params["params"]
    assert np.abs(params["actor"]["Dense_2"]["kernel"]).max() <= 0.01 * np.sqrt(6 / 66)
    assert np.abs(params["critic"]["Dense_2"]["kernel"]).max() > 0.1


def test_STATE_INDEPENDENT_STD_makes_the_deviation_a_parameter_or_an_output(single, talkative):
    free, dependent = (run.result.policy.model["actor"] for run in (single, talkative))
    assert free["log_std"].shape == (1,)
    assert free["Dense_2"]["kernel"].shape == (8, 1)
    assert "log_std" not in dependent
    assert dependent["Dense_1"]["kernel"].shape == (8, 2)


def test_SQUASH_is_whether_the_environment_sees_the_tanh_or_the_clipped_action(diary):
    seen = {}
    for squash in (True, False):
        _, _, rollout = collect(diary, Config(**SMALL | {"SQUASH": squash}), steps=10)
        seen[squash] = rollout.actions[..., 0], rollout.outcome.final_features[..., 2]
    np.testing.assert_allclose(seen[True][1], np.tanh(seen[True][0]), atol=1e-6)
    np.testing.assert_allclose(seen[False][1], np.clip(seen[False][0], -1, 1), atol=1e-6)
    assert np.any(np.abs(seen[False][0]) > 1)


def test_ANNEAL_LR_lowers_the_rate_in_a_straight_line(talkative):
    # 18 optimiser steps; each evaluation reports the first of its 6.
    expected = 1e-2 * np.array([1, 1 - 6 / 18, 1 - 12 / 18])
    np.testing.assert_allclose(talkative.result.metrics["train/learning_rate"], expected, rtol=1e-6)


def test_NORMALIZE_ENV_keeps_statistics_of_all_observations_acted_on(diary, talkative, single):
    assert single.result.obs_scaling is None
    scaling = talkative.result.obs_scaling
    assert float(scaling.count) == 60
    _, _, rollout = collect(diary, Config(**TALKATIVE, NUM_EVAL_ENVS=0), seed=3)
    assert rollout.observed.features.shape == (5, 4, 3)
    identities = rollout.observed.features[0, :, 0]
    assert 0 < float(scaling.mean[0]) < 1
    assert not np.allclose(identities.mean(), scaling.mean[0])  # later episodes count as well


def test_NORMALIZE_ENV_standardises_by_the_statistics_before_the_rollout(diary):
    session, agent, rollout = collect(diary, Config(**SMALL | {"NORMALIZE_ENV": True}))
    learner, features = session.groups[0].learner, rollout.observed.features
    first, after = learner.prepare(agent, experience_of(rollout))
    np.testing.assert_allclose(np.reshape(first.features, features.shape), features, atol=1e-6)
    second, _ = learner.prepare(after, experience_of(rollout))
    rows = features.reshape(-1, 3).astype(np.float64)
    expected = (rows - rows.mean(0)) / np.sqrt(rows.var(0) + 1e-8)
    np.testing.assert_allclose(second.features, expected, rtol=1e-4, atol=1e-4)


def test_NORMALIZE_ENV_divides_rewards_by_the_deviation_of_the_discounted_return(diary):
    changes = {"NORMALIZE_ENV": True, "GAMMA": 0.5, "GAE_LAMBDA": 0.0}
    session, agent, rollout = collect(diary, Config(**SMALL | changes))
    learner, outcome = session.groups[0].learner, rollout.outcome
    rewards, _ = learner._move_normalizers(agent, experience_of(rollout))
    running, totals = np.zeros(4), []
    for reward, ended in zip(outcome.rewards, outcome.episode_ends, strict=True):
        running = 0.5 * running + reward
        totals.append(running)
        running = np.where(ended, 0, running)
    np.testing.assert_allclose(rewards, outcome.rewards / np.std(totals), rtol=1e-4)


def test_FIXED_INIT_starts_every_episode_of_a_copy_in_its_first_state(diary):
    _, _, rollout = collect(diary, Config(**SMALL | {"FIXED_INIT": True}), steps=30)
    identities = rollout.observed.features[..., 0]
    assert np.all(identities == identities[0])
    assert len(np.unique(identities[0])) == 4


def test_without_FIXED_INIT_every_episode_of_every_copy_starts_anew(diary_rollout):
    rollout = diary_rollout[2]
    starts = rollout.observed.features[..., 1] == 0
    identities = rollout.observed.features[..., 0][starts]
    assert len(identities) > 12
    assert len(np.unique(identities)) == len(identities)


@pytest.mark.parametrize(("offset", "first_ends"), [(False, [8, 8, 8, 8]), (True, [8, 6, 4, 2])])
def test_OFFSET_STEP_spreads_the_first_time_limits(offset, first_ends):
    task = make("pendulum", max_steps=8)
    _, _, rollout = collect(task, Config(**SMALL | {"OFFSET_STEP": offset}), steps=17)
    ends = [np.flatnonzero(column) + 1 for column in rollout.outcome.episode_ends.T]
    assert [int(column[0]) for column in ends] == first_ends
    assert [int(column[1] - column[0]) for column in ends] == [8] * 4  # the first episode only


def test_NUM_EVAL_ENVS_is_the_number_of_evaluation_episodes(sweep, talkative, silent):
    assert of_row(sweep, "base").metrics["steps"].reward.shape == (
        2,
        5,
        3,
    )  # evaluations, max_steps, episodes
    np.testing.assert_array_equal(silent.result.metrics["eval/total_episodes"], [2])
    assert not [name for name in talkative.result.metrics if name.startswith("eval/")]


def test_EVAL_FREQ_is_the_number_of_evaluations_and_at_most_one_an_update(sweep, talkative, silent):
    assert of_row(sweep, "base").metrics["train/loss"].shape == (2,)
    assert silent.result.metrics["train/loss"].shape == (1,)
    assert talkative.result.metrics["train/loss"].shape == (3,)  # 100 were asked of 3 updates


def test_VERBOSE_prints_a_line_an_evaluation_and_DEBUG_one_an_update(talkative, silent):
    lines = talkative.output.splitlines()
    assert [line.split("|")[0].split() for line in lines] == [
        ["update", "1"],
        ["steps", "20"],
        ["update", "2"],
        ["steps", "40"],
        ["update", "3"],
        ["steps", "60"],
    ]
    assert "train/approx_kl" in lines[0]
    assert silent.output == ""


def test_what_is_printed_or_evaluated_does_not_change_what_is_learned(talkative, silent):
    np.testing.assert_array_equal(params_of(talkative.result), params_of(silent.result))
