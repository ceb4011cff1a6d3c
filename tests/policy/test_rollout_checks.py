"""What does not fit a policy is told by name before any of it is used, and leaves the policy as it was."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("rsl_rl")

from tensordict import TensorDict  # noqa: E402

from dressage.errors import (  # noqa: E402
    CheckpointError,
    ConfigError,
    EnvironmentContractError,
    NonFiniteError,
    RolloutError,
    WeightsError,
)
from dressage.policy import EnvRet, PolicyConfig, PolicyRole, TrainConfig  # noqa: E402
from dressage.policy.finite import first_broken, holds_nan, is_finite  # noqa: E402
from dressage.policy.rsl_rl_policy.env_meta import ExampleObservation, RSLRLVecEnvMeta  # noqa: E402
from dressage.policy.rsl_rl_policy.layout import layout_of  # noqa: E402
from dressage.policy.rsl_rl_policy.rsl_rl_policy import RSLRLPolicy  # noqa: E402
from dressage.policy.torch_envs.pendulum import Pendulum  # noqa: E402
from dressage.runtime import RuntimeConfig  # noqa: E402
from tests.policy.plain_loop import PlainLoop, largest_difference  # noqa: E402
from tests.policy.rsl_rl_configs import distillation_config, ppo_config, recurrent_config  # noqa: E402
from tests.policy.small_envs import Counting  # noqa: E402
from tests.policy.test_runner_equality import RND  # noqa: E402

STEPS, COPIES = 4, 3


def pendulum_loop(config=None, **options):
    torch.manual_seed(0)
    env = Pendulum(num_envs=COPIES, max_steps=3, seed=0)
    return PlainLoop(env, ppo_config(steps=STEPS) if config is None else config, **options)


def with_step(fragment, name, array):
    steps = dict(fragment.steps)
    if array is None:
        del steps[name]
    else:
        steps[name] = array
    return replace(fragment, steps=steps)


def zeros(*shape, dtype=np.float32):
    return np.zeros((STEPS, COPIES, *shape), dtype)


# Rollouts


MISSING = (
    *("observation/policy", "action", "reward", "terminated", "truncated", "value", "log_prob"),
    *("distribution/0", "distribution/1"),
)


@pytest.mark.parametrize("name", MISSING)
def test_a_field_that_a_rollout_lacks_is_named(name):
    loop = pendulum_loop(host=True)
    with pytest.raises(RolloutError, match=f"The fragment of 'test' lacks {name}; it has: "):
        loop.learner.update_dataset(with_step(loop.collect(), name, None))


@pytest.mark.parametrize(
    ("name", "array", "text"),
    [
        ("reward", zeros(1), r"reward has shape \[4, 3, 1\]; it must be \[T, N\], steps and copies"),
        ("action", zeros(2), r"action has shape \[4, 3, 2\]; this policy takes \[4, 3, 1\]"),
        ("value", zeros(), r"value has shape \[4, 3\]; this policy takes \[4, 3, 1\]"),
        ("log_prob", zeros(1), r"log_prob has shape \[4, 3, 1\]; this policy takes \[4, 3\]"),
        ("distribution/1", zeros(4), r"distribution/1 has shape \[4, 3, 4\]; this policy takes \[4, 3, 1\]"),
        ("observation/policy", zeros(2), r"observation/policy has shape .* takes \[4, 3, 3\]"),
        ("truncated", zeros(), "truncated holds float32; it says yes or no, so it must hold bool"),
        ("bootstrap_value", zeros(1), r"bootstrap_value has shape \[4, 3, 1\]; this policy takes \[4, 3\]"),
        ("bootstrap_value", None, "lacks bootstrap_value, which bootstraps_final asks for"),
        ("value", zeros(1, dtype=object), "value holds object, and no numbers"),
        ("value", [[0.0]], "value is a list, and no array"),
    ],
)
def test_a_field_of_another_shape_or_type_is_named_with_what_is_needed(name, array, text):
    loop = pendulum_loop(host=True)
    with pytest.raises(RolloutError, match=f"The fragment of 'test' {text}"):
        loop.learner.update_dataset(with_step(loop.collect(), name, array))


def test_what_must_hold_after_the_last_step_is_looked_at_too():
    loop = pendulum_loop(recurrent_config(steps=STEPS, num_mini_batches=1), host=True)
    fragment = loop.collect()
    with pytest.raises(RolloutError, match="lacks last observation/policy, last hidden_state/critic/0"):
        loop.learner.update_dataset(replace(fragment, last={}))
    short = {**fragment.last, "hidden_state/critic/1": np.zeros((COPIES, 1, 5), np.float32)}
    with pytest.raises(
        RolloutError, match=r"hidden_state/critic/1 has shape \[3, 1, 5\].*takes \[3, 1, 12\]"
    ):
        loop.learner.update_dataset(replace(fragment, last=short))


@pytest.mark.parametrize(
    ("finals", "text"),
    [
        ({"index": np.zeros((1, 2), int)}, "lacks final observation/policy"),
        ({"index": np.zeros(2, int)}, r"final index has shape \[2\] of int64; it holds a step and a copy"),
        ({"index": np.array([[STEPS, 0]])}, "final index names a step or a copy beyond its 4 and 3"),
        ({"index": np.array([[0, -1]])}, "final index names a step or a copy beyond its 4 and 3"),
        ({"observation/policy": np.zeros((1, 2), np.float32)}, r"observation/policy has shape \[1, 2\]"),
    ],
)
def test_final_observations_that_lead_nowhere_are_refused(finals, text):
    loop = pendulum_loop(host=True)
    whole = {"index": np.zeros((1, 2), int), "observation/policy": np.zeros((1, 3), np.float32)}
    given = finals if "lacks" in text else {**whole, **finals}
    with pytest.raises(RolloutError, match=text):
        loop.learner.update_dataset(replace(loop.collect(), finals=given))


@pytest.mark.parametrize("name", ["reward", "observation/policy", "value", "distribution/1"])
@pytest.mark.parametrize("host", [True, False], ids=["numpy", "torch"])
def test_a_number_that_is_not_finite_reaches_no_update_and_is_named(name, host):
    loop = pendulum_loop(host=host)
    fragment = loop.collect()
    array = fragment.steps[name].copy() if host else fragment.steps[name].clone()
    array[2, 1] = np.nan if host else torch.inf
    fragment = with_step(fragment, name, array)
    with pytest.raises(NonFiniteError, match=f"fragment of 'test', step 2, copy 1: {name} is not finite"):
        loop.learner.update_dataset(fragment)


@pytest.mark.parametrize("part", ["last", "finals"])
def test_so_does_one_that_held_after_a_step(part):
    loop = pendulum_loop(host=True)
    fragment = loop.collect()
    getattr(fragment, part)["observation/policy"][0] = np.inf
    with pytest.raises(NonFiniteError, match="observation/policy"):
        loop.learner.update_dataset(fragment)


def test_a_student_needs_what_its_teacher_would_have_done():
    loop = pendulum_loop(distillation_config(STEPS), host=True)
    with pytest.raises(RolloutError, match="lacks extras/privileged_action"):
        loop.learner.update_dataset(with_step(loop.collect(), "extras/privileged_action", None))


def test_correcting_for_older_weights_needs_the_values_that_follow_time_limits():
    loop = pendulum_loop(rollout_mode="async", host=True)
    fragment = loop.collect()
    loop.iterate()
    bare = with_step(with_step(fragment, "bootstraps_final", None), "bootstrap_value", None)
    with pytest.raises(RolloutError, match="lacks bootstrap_value, which correcting for older weights needs"):
        loop.learner.update_dataset(bare)


def test_a_rollout_without_time_limits_needs_no_values_that_follow_them():
    loop = pendulum_loop(host=True)
    fragment = loop.collect()
    bare = with_step(with_step(fragment, "bootstraps_final", None), "bootstrap_value", None)
    loop.learner.update_dataset(bare)
    assert loop.learner.train()["training/time_outs_rsl_rl"] == fragment.steps["truncated"].sum()


CURIOUS = ppo_config(steps=STEPS, rnd_cfg={**RND, "reward_normalization": True}) | {
    "obs_groups": {"actor": ["policy"], "critic": ["policy"], "rnd_state": ["policy"]}
}


@pytest.mark.parametrize(
    "config",
    [ppo_config(steps=STEPS), recurrent_config(steps=STEPS, num_mini_batches=1), CURIOUS],
    ids=["mlp", "lstm", "curious"],
)
@pytest.mark.parametrize("where", ["process_env_step", "compute_returns"])
def test_filling_that_fails_on_the_way_leaves_the_policy_as_it_was(config, where, monkeypatch):
    broken, untouched = pendulum_loop(config), pendulum_loop(config)
    for loop in (broken, untouched):
        torch.manual_seed(1)
        loop.iterate()
    algorithm, calls = broken.learner.algo, []
    real = getattr(algorithm, where)

    def fails_at_last(*arguments):
        calls.append(arguments)
        if len(calls) == (3 if where == "process_env_step" else 1):
            raise OSError("the disk is full")
        return real(*arguments)

    torch.manual_seed(2)
    fragment, stream = broken.collect(), torch.get_rng_state()
    with monkeypatch.context() as patch:
        patch.setattr(algorithm, where, fails_at_last)
        with pytest.raises(OSError, match="the disk is full"):
            broken.learner.update_dataset(fragment)
    with pytest.raises(RolloutError, match="no data to learn from"):
        broken.learner.train()
    torch.set_rng_state(stream)
    broken.learner.update_dataset(fragment)
    metrics = broken.learner.train()
    torch.manual_seed(2)
    assert metrics == untouched.iterate()
    states = untouched.learner.get_trainable_parameters()
    assert largest_difference(states, broken.learner.get_trainable_parameters()) == 0.0


def test_a_layout_takes_no_random_number():
    loop = pendulum_loop()
    before = torch.get_rng_state()
    layout_of(loop.learner.algo, ("actor", "critic"))
    assert torch.equal(torch.get_rng_state(), before)


# Observations and answers


GROUP = torch.zeros(COPIES, 3)
UNFIT = [
    ({}, "lacks the group 'policy', which the policy was built with. It has none"),
    ({"polcy": GROUP}, "lacks the group 'policy', .* Did you mean 'polcy'"),
    ({"policy": GROUP[:2]}, r"'policy' of 'mine' has shape \[2, 3\]; the policy was built for \[3, 3\]"),
    ({"policy": GROUP[:, :2]}, r"'policy' of 'mine' has shape \[3, 2\]; the policy was built for \[3, 3\]"),
    (
        {"policy": GROUP.double()},
        "'policy' of 'mine' holds float64; the policy was built for float32: convert",
    ),
    ({"policy": None}, "'policy' of 'mine' is a NoneType, and no array of numbers"),
    ({"policy": "here"}, "'policy' of 'mine' is a str, and no array of numbers"),
    (None, "'policy' of 'mine' is a NoneType, and no array of numbers"),
    (np.zeros((COPIES, 4), np.float32), r"has shape \[3, 4\]; the policy was built for \[3, 3\]"),
    (TensorDict({"policy": GROUP[:, :2]}, batch_size=[COPIES]), r"has shape \[3, 2\]"),
    (TensorDict({"other": GROUP}, batch_size=[COPIES]), "lacks the group 'policy'.* Known: other"),
]


@pytest.mark.parametrize(("observation", "text"), UNFIT)
def test_an_observation_that_the_policy_was_not_built_for_is_refused(observation, text):
    loop = pendulum_loop()
    with pytest.raises(EnvironmentContractError, match=text):
        loop.actor.rollout_step(EnvRet("mine", observation))


@pytest.mark.parametrize(
    "observation", [GROUP, GROUP.numpy(), {"policy": GROUP.numpy()}, {"policy": GROUP, "more": GROUP[:1]}]
)
def test_every_form_of_an_observation_that_fits_is_acted_on(observation):
    assert pendulum_loop().actor.rollout_step(EnvRet("mine", observation)).action.shape == (COPIES, 1)


def test_a_final_observation_that_does_not_fit_is_refused():
    loop = pendulum_loop()
    response = loop.actor.rollout_step(loop.env_ret)
    flags = torch.zeros(COPIES, dtype=torch.bool)
    wrong = EnvRet("test", GROUP, torch.zeros(COPIES), flags, ~flags, final_observation=GROUP[:, :1])
    with pytest.raises(EnvironmentContractError, match=r"'test' \(final_observation\) has shape \[3, 1\]"):
        loop.actor.postprocess(wrong, response)


def answer_of(loop, reward=None, env_id="test"):
    flags = torch.zeros(COPIES, dtype=torch.bool)
    given = torch.zeros(COPIES) if reward is None else reward
    return EnvRet(env_id, loop.env_ret.observation, given, flags, flags)


def test_a_response_is_answered_once_and_by_its_own_environment():
    loop = pendulum_loop()
    response = loop.actor.rollout_step(loop.env_ret)
    with pytest.raises(RolloutError, match="one of 'other', and the response was for 'test'"):
        loop.actor.postprocess(answer_of(loop, env_id="other"), response)
    whole = loop.actor.postprocess(answer_of(loop), response)
    with pytest.raises(RolloutError, match="was answered already: postprocess takes what rollout_step"):
        loop.actor.postprocess(answer_of(loop), whole)
    with pytest.raises(
        RolloutError, match="was answered already: every step needs a rollout_step of its own"
    ):
        loop.actor.postprocess(answer_of(loop), response)
    other = loop.actor.rollout_step(loop.env_ret)
    assert loop.actor.postprocess(answer_of(loop), other).reward is not None
    with pytest.raises(RolloutError, match="was answered already"):
        loop.actor.postprocess(answer_of(loop), response)


def test_rewards_of_whole_numbers_become_fractions_and_texts_are_refused():
    loop = pendulum_loop()
    response = loop.actor.rollout_step(loop.env_ret)
    with pytest.raises(EnvironmentContractError, match="last_reward of 'test' is a str, and no array"):
        loop.actor.postprocess(answer_of(loop, "much"), response)
    assert loop.actor.postprocess(answer_of(loop, np.arange(COPIES)), response).reward.tolist() == [0, 1, 2]


def test_observations_in_double_precision_are_refused_where_the_models_are_built():
    def build(dtype):
        example = TensorDict({"policy": torch.zeros(3, 2, dtype=dtype)}, batch_size=[3])
        meta = RSLRLVecEnvMeta(num_envs=3, num_actions=1, get_observations=lambda: example)
        RSLRLPolicy(PolicyConfig(policy_kwargs=ppo_config()), "train").init_train(TrainConfig(), meta)

    with pytest.raises(
        ConfigError, match=r"'policy' holds float64, .* compute in float32.*observations.float"
    ):
        build(torch.float64)
    build(torch.int32)  # which rsl_rl normalises into fractions


@pytest.mark.parametrize("method", ["rollout_step", "postprocess"])
def test_something_else_than_an_answer_of_an_environment_is_refused_by_its_type(method):
    loop = pendulum_loop()
    arguments = [GROUP] if method == "rollout_step" else [GROUP, loop.actor.rollout_step(loop.env_ret)]
    with pytest.raises(RolloutError, match=f"{method} takes an EnvRet, got Tensor"):
        getattr(loop.actor, method)(*arguments)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"actor/0": np.zeros((2, 1, 12))},
            r"actor/0 has shape \[2, 1, 12\]; this policy takes \[3, 1, 12\]",
        ),
        ({"critic/1": np.zeros((3, 1, 5))}, r"critic/1 has shape \[3, 1, 5\]; .* copies, layers, units"),
        (
            {"actr/0": np.zeros((3, 1, 12))},
            "has actor/0, actor/1, actr/0, critic/0.*this policy's has actor/0",
        ),
    ],
)
def test_recurrent_state_of_another_policy_is_refused_and_changes_nothing(change, text):
    loop = pendulum_loop(recurrent_config(steps=STEPS))
    loop.collect()
    before = loop.actor.rollout_state()
    with pytest.raises(RolloutError, match=text):
        loop.actor.load_rollout_state({**before, **change})
    after = loop.actor.rollout_state()
    assert before.keys() == {"actor/0", "actor/1", "critic/0", "critic/1"}
    assert all(np.array_equal(before[name], after[name]) for name in before)
    loop.actor.load_rollout_state(before)
    loop.actor.load_rollout_state({})
    assert loop.actor.rollout_state() == {}


# Weights, seeds and updates


def test_weights_that_hold_nan_are_refused_by_name_and_change_nothing():
    loop = pendulum_loop()
    before, states = (loop.actor.get_trainable_parameters() for _ in range(2))
    states["actor"]["mlp.0.weight"][0, 0] = torch.nan
    states["critic"]["mlp.0.bias"] += 1.0
    with pytest.raises(WeightsError, match="actor/mlp.0.weight holds NaN"):
        loop.actor.load_state_dict(states)
    assert largest_difference(before, loop.actor.get_trainable_parameters()) == 0.0


def test_a_checkpoint_that_holds_nan_is_refused(tmp_path):
    loop = pendulum_loop()
    with torch.no_grad():
        loop.learner.algo.critic.mlp[0].bias[0] = torch.nan
    loop.learner.save_checkpoint(tmp_path / "model_0.pt", {})
    for policy in (loop.actor, loop.learner):
        with pytest.raises(CheckpointError, match="critic/mlp.0.bias holds NaN"):
            policy.load_checkpoint(tmp_path / "model_0.pt")


def test_checkpoints_are_named_by_texts_too(tmp_path):
    loop = pendulum_loop()
    loop.learner.save_checkpoint(str(tmp_path / "model_0.pt"), {"note": 1})
    assert loop.actor.load_checkpoint(str(tmp_path / "model_0.pt")) == {"note": 1}
    assert loop.learner.load_checkpoint(str(tmp_path / "model_0.pt")) == {"note": 1}


@pytest.mark.parametrize("seed", [-1, 1.5, "1", None, 2**63])
def test_a_seed_that_is_none_is_refused(seed):
    with pytest.raises(ConfigError, match="A seed must be a whole number from 0 to 2\\^63 - 1, got"):
        pendulum_loop().actor.seed(seed)


def test_a_run_takes_no_seed_that_its_policy_would_refuse():
    assert RuntimeConfig(seed=2**63 - 1).seed == 2**63 - 1
    with pytest.raises(ConfigError, match="runtime option 'seed' must be an integer"):
        RuntimeConfig(seed=2**63)


def test_an_update_whose_weights_become_nan_is_told_as_one_that_diverged():
    loop = pendulum_loop(ppo_config(steps=STEPS, learning_rate=1e30, schedule="fixed"))
    loop.learner.update_dataset(loop.collect())
    with pytest.raises(NonFiniteError, match=r"Update 0 .* diverged.*became NaN.*learning rate is 1e\+30"):
        loop.learner.train()


def test_an_update_whose_loss_is_not_finite_is_told_as_one_that_diverged():
    loop = pendulum_loop()
    fragment = loop.collect()
    huge = torch.full((STEPS, COPIES), 1e30)  # Finite, and its square is not.
    loop.learner.update_dataset(with_step(fragment, "reward", huge))
    with pytest.raises(NonFiniteError, match="Update 0 .* diverged.*: the value loss is inf"):
        loop.learner.train()


def test_an_error_of_another_kind_stays_what_it_is(monkeypatch):
    loop = pendulum_loop()
    loop.learner.update_dataset(loop.collect())

    def full():
        raise RuntimeError("out of memory")

    monkeypatch.setattr(loop.learner.algo, "update", full)
    with pytest.raises(RuntimeError, match="out of memory"):
        loop.learner.train()


def test_a_checkpoint_takes_the_place_of_data_that_were_not_learned_from(tmp_path):
    loop = pendulum_loop()
    loop.learner.save_checkpoint(tmp_path / "model_0.pt", {})
    fragment = loop.collect()
    loop.learner.update_dataset(fragment)
    loop.learner.load_checkpoint(tmp_path / "model_0.pt")
    with pytest.raises(RolloutError, match="no data to learn from"):
        loop.learner.train()
    loop.learner.update_dataset(fragment)
    assert loop.learner.train()["training/learning_rate"] > 0.0


# Numbers


@pytest.mark.parametrize("make", [np.array, torch.tensor], ids=["numpy", "torch"])
def test_what_is_finite_and_what_is_no_number_is_told_apart(make):
    huge = make([3e38, 3e38], dtype=(np if make is np.array else torch).float32)
    assert is_finite(huge) and not holds_nan(huge)  # though their sum is not
    assert not is_finite(make([1.0, float("inf")])) and not holds_nan(make([1.0, float("inf")]))
    assert not holds_nan(make([float("-inf"), float("inf")]))  # whose sum is no number
    assert not is_finite(make([1.0, float("nan")])) and holds_nan(make([1.0, float("nan")]))
    assert is_finite(make([1, 2])) and is_finite(make([True])) and not holds_nan(make([1, 2]))


def test_the_first_number_that_is_not_finite_is_found_by_step_then_copy():
    rows = np.zeros((3, 4, 2))
    rows[1, 3, 0], rows[2, 0, 0] = np.nan, np.inf
    assert first_broken(rows) == (1, 3)


def test_an_environment_that_counts_in_whole_numbers_is_taken_at_its_word():
    numbers = TensorDict({"policy": torch.zeros(2, 1)}, batch_size=[2])
    meta = RSLRLVecEnvMeta(num_envs=2, num_actions=1, get_observations=ExampleObservation(numbers))
    policy = RSLRLPolicy(PolicyConfig(policy_kwargs=ppo_config()), PolicyRole.EVAL)
    policy.init_eval(None, meta)
    counted = {"policy": torch.zeros(2, 1, dtype=torch.long)}
    with pytest.raises(EnvironmentContractError, match="holds int64; the policy was built for float32"):
        policy.rollout_step(EnvRet("counting", counted))


def test_the_small_environments_fit():
    torch.manual_seed(0)
    assert PlainLoop(Counting(), ppo_config(steps=STEPS)).iterate()["training/weights_lag"] == 0.0
