import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("rsl_rl")

from rsl_rl.algorithms import PPO  # noqa: E402
from tensordict import TensorDict  # noqa: E402

from dressage.errors import (  # noqa: E402
    ConfigError,
    EnvironmentContractError,
    RoleError,
    RolloutError,
    StaleWeightsError,
    WeightsError,
)
from dressage.policy import EnvRet, EvalConfig, PolicyConfig, PolicyRole, TrainConfig  # noqa: E402
from dressage.policy.rsl_rl_policy.fragments import to_tensordict  # noqa: E402
from dressage.policy.rsl_rl_policy.rsl_rl_policy import RSLRLPolicy, RSLRLVecEnvMeta  # noqa: E402
from dressage.policy.torch_envs.pendulum import Pendulum  # noqa: E402
from tests.policy.plain_loop import PlainLoop, largest_difference  # noqa: E402
from tests.policy.rsl_rl_configs import ppo_config, recurrent_config  # noqa: E402
from tests.policy.small_envs import ConstantReward, Counting  # noqa: E402


def counting_loop(**options):
    torch.manual_seed(0)
    return PlainLoop(Counting(), ppo_config(steps=4), **options)


def one_step(loop):
    response = loop.actor.rollout_step(loop.env_ret)
    loop.env_ret = loop.env.step(response.action)
    return loop.actor.postprocess(loop.env_ret, response)


def test_a_transition_pairs_an_action_with_the_reward_that_it_brought():
    loop = counting_loop()
    transitions = [one_step(loop) for _ in range(3)]
    assert [float(t.observation["policy"][0]) for t in transitions] == [0.0, 1.0, 2.0]
    assert [float(t.reward[0]) for t in transitions] == [1.0, 2.0, 3.0]
    assert [t.truncated.tolist() for t in transitions] == [[False, False], [False, False], [True, False]]


def test_a_response_is_pending_until_the_environment_has_answered():
    loop = counting_loop()
    response = loop.actor.rollout_step(loop.env_ret)
    assert response.reward is None and response.version == 0
    assert response.action.shape == (2, 1) and response.value.shape == (2, 1)
    assert response.log_prob.shape == (2,)
    with pytest.raises(RolloutError, match="response of step 0 is still pending: give it to postprocess"):
        loop.actor.close_fragment([response], loop.env_ret)


def test_a_time_limit_is_followed_by_the_value_of_the_final_observation():
    loop = counting_loop()
    third = [one_step(loop) for _ in range(3)][-1]
    final = TensorDict({"policy": torch.tensor([[3.5]])}, batch_size=[1])
    with torch.no_grad():
        expected = loop.actor.algo.critic(final)[0, 0]
    assert third.bootstrap_rule == "final_observation"
    torch.testing.assert_close(third.bootstrap_value, torch.tensor([float(expected), 0.0]))
    assert third.final["rows"].tolist() == [0]


def test_rsl_rls_rule_uses_the_value_before_the_step():
    loop = counting_loop(time_out_bootstrap="rsl_rl")
    third = [one_step(loop) for _ in range(3)][-1]
    assert third.bootstrap_rule == "rsl_rl"
    assert third.bootstrap_value.tolist() == [float(third.value[0, 0]), 0.0]


def test_the_value_of_a_final_observation_leaves_recurrent_state_as_it_was():
    torch.manual_seed(0)
    with_final = PlainLoop(Pendulum(3, max_steps=2), recurrent_config())
    torch.manual_seed(0)
    without = PlainLoop(Pendulum(3, max_steps=2), recurrent_config(), time_out_bootstrap="rsl_rl")
    states = []
    for loop in (with_final, without):
        torch.manual_seed(1)
        transitions = [one_step(loop) for _ in range(5)]
        states.append(loop.actor.rollout_state())
    assert transitions[1].truncated.all()
    assert states[0].keys() == {"actor/0", "actor/1", "critic/0", "critic/1"}
    for name, state in states[0].items():
        np.testing.assert_array_equal(state, states[1][name])


@pytest.mark.parametrize(
    ("how", "low", "high"), [("final", 9.8, 10.2), ("time_out", 9.8, 10.2), ("terminal", 2.0, 4.0)]
)
def test_the_value_of_a_constant_reward_is_ten_when_a_time_limit_is_no_end(how, low, high):
    torch.manual_seed(0)
    config = ppo_config(gamma=0.9, learning_rate=3e-2, schedule="fixed", use_clipped_value_loss=False)
    config["critic"] |= {"hidden_dims": [8], "obs_normalization": False}
    loop = PlainLoop(ConstantReward(how=how), config)
    metrics = loop.iterate(60)
    value = float(loop.learner.algo.critic(loop.env_ret.observation).detach()[0, 0])
    assert low < value < high
    counted = metrics["training/time_outs_final_observation"], metrics["training/time_outs_rsl_rl"]
    assert [count > 0 for count in counted] == [how == "final", how == "time_out"]


def test_building_the_acting_role_takes_no_random_number():
    meta = PlainLoop(Counting(), ppo_config()).env.meta()
    before = torch.get_rng_state()
    actor = RSLRLPolicy(PolicyConfig(policy_kwargs=ppo_config()), PolicyRole.EVAL)
    actor.init_eval(EvalConfig(), meta)
    assert torch.equal(torch.get_rng_state(), before)
    assert actor.algo.optimizer is None and actor.algo.storage is None


def test_the_configuration_is_left_as_it_was_and_nothing_is_printed(capsys):
    config = ppo_config()
    PlainLoop(Counting(), config)
    assert config == ppo_config()
    assert capsys.readouterr().out == ""


def test_the_seeds_attributes_name_algorithm_and_class():
    loop = counting_loop()
    assert loop.learner.algo_cls is PPO and isinstance(loop.learner.algo, PPO)


def test_an_evaluating_policy_acts_by_the_mean():
    loop = counting_loop()
    judge = RSLRLPolicy(loop.config, PolicyRole.EVAL)
    judge.init_eval(EvalConfig(deterministic=True), loop.env.meta())
    judge.load_weights(loop.learner.weights())
    first, second = (judge.rollout_step(loop.env_ret).action for _ in range(2))
    assert torch.equal(first, second)


def test_a_batch_of_tensors_teaches_the_same_as_the_fragment_it_came_from():
    by_fragment, by_batch = counting_loop(), counting_loop()
    torch.manual_seed(1)
    by_fragment.iterate()
    torch.manual_seed(1)
    batch = to_tensordict(by_batch.collect())
    assert batch.batch_size == torch.Size([4, 2])
    by_batch.learner.update_dataset(batch)
    by_batch.learner.train()
    states = by_fragment.learner.get_trainable_parameters()
    assert largest_difference(states, by_batch.learner.get_trainable_parameters()) == 0.0


def test_fragments_of_two_workers_lie_side_by_side():
    torch.manual_seed(0)
    loop = PlainLoop(Counting(), ppo_config(steps=4))
    learner = RSLRLPolicy(loop.config, PolicyRole.TRAIN)
    meta = loop.env.meta()
    learner.init_train(TrainConfig(), RSLRLVecEnvMeta(None, None, None, 4, 1, meta.get_observations))
    loop.actor.load_weights(learner.weights())
    fragments = []
    for _ in range(2):
        transitions = [one_step(loop) for _ in range(4)]
        fragments.append(loop.actor.close_fragment(transitions, loop.env_ret))
    learner.update_dataset(fragments)
    stored = learner.algo.storage.observations["policy"][:, :, 0]
    assert stored.tolist() == [[t, 100.0 + t, 4.0 + t, 104.0 + t] for t in range(4)]


# Data that do not fit


def test_a_part_filled_storage_is_not_learned_from():
    loop = counting_loop()
    transitions = [one_step(loop) for _ in range(3)]
    fragment = loop.actor.close_fragment(transitions, loop.env_ret)
    with pytest.raises(RolloutError, match=r"3 steps of 2 environments.*exactly 4 .*of 2 .*A part-filled"):
        loop.learner.update_dataset(fragment)


def test_an_over_full_storage_is_not_learned_from():
    loop = counting_loop()
    fragment = loop.collect()
    with pytest.raises(RolloutError, match="An over-full storage is not learned from"):
        loop.learner.update_dataset([fragment, fragment])


def test_a_filled_storage_takes_no_second_rollout():
    loop = counting_loop()
    loop.learner.update_dataset(loop.collect())
    with pytest.raises(RolloutError, match=r"filled already: call train\(\) before update_dataset\(\) again"):
        loop.learner.update_dataset(loop.collect())


def test_training_without_data_is_refused():
    with pytest.raises(RolloutError, match=r"no data to learn from: call update_dataset\(\) before"):
        counting_loop().learner.train()


def test_a_batch_without_rewards_is_refused_with_what_it_has():
    loop = counting_loop()
    batch = to_tensordict(loop.collect()).exclude("reward")
    with pytest.raises(RolloutError, match="of 'batch' lacks reward; it has: action, bootstrap_value"):
        loop.learner.update_dataset(batch)


def test_no_fragment_at_all_is_refused():
    with pytest.raises(RolloutError, match="no fragment in the data"):
        counting_loop().learner.update_dataset([])


def test_something_else_than_a_rollout_is_refused_by_its_type():
    with pytest.raises(RolloutError, match="takes TensorDicts and Fragments, got int"):
        counting_loop().learner.update_dataset(3)


def test_older_weights_are_refused_in_sync_mode():
    loop = counting_loop()
    fragment = loop.collect()
    loop.iterate()
    with pytest.raises(StaleWeightsError, match="acted by weights of version 0, and the learner has version"):
        loop.learner.update_dataset(fragment)


def test_weights_that_change_within_a_fragment_are_refused():
    loop = counting_loop()
    first = one_step(loop)
    loop.actor.version = 5
    with pytest.raises(
        RolloutError, match=r"Weights changed within a fragment: it was acted by versions \[0,"
    ):
        loop.actor.close_fragment([first, one_step(loop)], loop.env_ret)


def test_an_environment_that_overwrites_its_observations_is_refused():
    loop = counting_loop()
    numbers = TensorDict({"policy": torch.zeros(2, 1)}, batch_size=[2])
    flags = torch.zeros(2, dtype=torch.bool)
    returned = EnvRet("lazy", numbers, torch.zeros(2), flags, flags)
    transitions = [loop.actor.postprocess(returned, loop.actor.rollout_step(returned)) for _ in range(2)]
    with pytest.raises(EnvironmentContractError, match="'lazy' returned the observation group 'policy'"):
        loop.actor.close_fragment(transitions, returned)


def test_a_return_without_a_reward_answers_no_action():
    loop = counting_loop()
    response = loop.actor.rollout_step(loop.env_ret)
    with pytest.raises(EnvironmentContractError, match="'test' has no last_reward, so it answers no action"):
        loop.actor.postprocess(loop.env_ret, response)


def test_flags_of_another_size_are_refused():
    loop = counting_loop()
    response = loop.actor.rollout_step(loop.env_ret)
    flags = torch.zeros(2, dtype=torch.bool)
    wrong = EnvRet("test", loop.env_ret.observation, torch.zeros(2), flags[:1], flags)
    with pytest.raises(EnvironmentContractError, match=r"last_terminated of 'test' has shape \[1\]"):
        loop.actor.postprocess(wrong, response)


# Roles


@pytest.mark.parametrize(
    ("role", "call"),
    [
        (PolicyRole.TRAIN, lambda policy: policy.rollout_step(None)),
        (PolicyRole.TRAIN, lambda policy: policy.postprocess(None, None)),
        (PolicyRole.TRAIN, lambda policy: policy.init_eval()),
        (PolicyRole.EVAL, lambda policy: policy.update_dataset([])),
        (PolicyRole.EVAL, lambda policy: policy.train()),
        (PolicyRole.EVAL, lambda policy: policy.setup_optimizer({})),
        (PolicyRole.EVAL, lambda policy: policy.init_train(TrainConfig())),
    ],
)
def test_a_role_does_only_its_own_work(role, call):
    other = (PolicyRole.EVAL if role is PolicyRole.TRAIN else PolicyRole.TRAIN).name
    policy = RSLRLPolicy(PolicyConfig(policy_kwargs=ppo_config()), role)
    with pytest.raises(RoleError, match=f"belongs to the role {other}; this policy's is {role.name}"):
        call(policy)


def test_a_policy_must_be_built_before_it_acts():
    policy = RSLRLPolicy(PolicyConfig(policy_kwargs=ppo_config()), PolicyRole.EVAL)
    with pytest.raises(RoleError, match="rollout_step needs a policy that is built: call init_eval first"):
        policy.rollout_step(EnvRet("test", None))


# Weights


def test_parameters_are_copies_with_buffers_and_learning_rate():
    learner = counting_loop().learner
    states = learner.get_trainable_parameters()
    assert "obs_normalizer._mean" in states["actor"]
    assert float(states["schedule"]["learning_rate"]) == 1e-3
    before = learner.algo.actor.state_dict()["mlp.0.weight"].clone()
    states["actor"]["mlp.0.weight"].zero_()
    assert torch.equal(learner.algo.actor.state_dict()["mlp.0.weight"], before)


def test_weights_carry_normalisers_version_and_learning_rate_to_the_acting_role():
    loop = counting_loop()
    loop.iterate(2)
    weights = loop.learner.weights()
    assert weights.version == 2
    assert all(isinstance(array, np.ndarray) for array in weights.arrays.values())
    loop.actor.load_weights(weights)
    assert loop.actor.version == 2
    states = loop.learner.get_trainable_parameters()
    assert largest_difference(states, loop.actor.get_trainable_parameters()) == 0.0
    assert int(states["actor"]["obs_normalizer.count"]) == 16


def test_weights_that_cannot_be_written_to_are_loaded_all_the_same():
    loop = counting_loop()
    weights = loop.learner.weights()
    for array in weights.arrays.values():
        array.flags.writeable = False
    loop.actor.load_weights(weights)
    states = loop.learner.get_trainable_parameters()
    assert largest_difference(states, loop.actor.get_trainable_parameters()) == 0.0


def test_weights_of_another_shape_are_refused_with_names_and_shapes_and_change_nothing():
    loop = counting_loop()
    before = loop.learner.get_trainable_parameters()
    states = loop.learner.get_trainable_parameters()
    states["actor"]["mlp.0.weight"] = torch.zeros(16, 9)
    states["critic"]["mlp.7.bias"] = torch.zeros(3)
    del states["critic"]["mlp.2.bias"]
    states["actor"]["mlp.0.bias"] += 1.0
    with pytest.raises(WeightsError) as caught:
        loop.learner.load_state_dict(states)
    for fault in (
        "actor/mlp.0.weight is [16, 9] where [16, 1] is needed",
        "critic/mlp.7.bias [3] is unknown",
        "critic/mlp.2.bias [16] is missing",
    ):
        assert fault in str(caught.value)
    assert largest_difference(before, loop.learner.get_trainable_parameters()) == 0.0


def test_a_missing_module_is_refused_by_name():
    loop = counting_loop()
    states = loop.learner.get_trainable_parameters()
    states["actr"] = states.pop("actor")
    with pytest.raises(WeightsError, match=r"module 'actr' is unknown \(known: actor, critic\)") as caught:
        loop.learner.load_state_dict(states)
    assert "module 'actor' is missing" in str(caught.value)


# Optimiser


def test_an_optimiser_configuration_is_honoured():
    learner = counting_loop().learner
    learner.setup_optimizer({"class_name": "sgd", "learning_rate": 0.5, "momentum": 0.9})
    assert type(learner.algo.optimizer) is torch.optim.SGD
    assert learner.algo.optimizer.param_groups[0]["momentum"] == 0.9
    assert learner.algo.learning_rate == 0.5
    trained = {id(p) for entry in learner.algo.optimizer.param_groups for p in entry["params"]}
    modules = [*learner.algo.actor.parameters(), *learner.algo.critic.parameters()]
    assert trained == {id(parameter) for parameter in modules}


def test_without_a_configuration_the_optimiser_starts_anew_as_it_is():
    loop = counting_loop()
    loop.iterate()
    assert loop.learner.algo.optimizer.state
    loop.learner.setup_optimizer(None)
    assert type(loop.learner.algo.optimizer) is torch.optim.Adam and not loop.learner.algo.optimizer.state


def test_a_learner_takes_its_optimiser_from_the_training_configuration():
    loop = counting_loop()
    learner = RSLRLPolicy(loop.config, PolicyRole.TRAIN)
    learner.init_train(TrainConfig(optimizer={"class_name": "adamw"}), loop.env.meta())
    assert type(learner.algo.optimizer) is torch.optim.AdamW


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"class_name": "adan"}, "class_name is wrong: Invalid optimizer 'adan'"),
        ({"momentun": 0.9, "class_name": "sgd"}, "no option 'momentun'. Did you mean 'momentum'"),
        ({"learning_rate": -1.0}, "refuses its configuration: Invalid learning rate"),
    ],
)
def test_an_optimiser_configuration_that_cannot_be_honoured_is_refused(config, text):
    with pytest.raises(ConfigError, match=text):
        counting_loop().learner.setup_optimizer(config)


# Random stream


def test_the_random_stream_goes_on_from_where_it_was_read():
    policy = counting_loop().actor
    policy.seed(3)
    state = policy.random_state()
    first = torch.rand(3)
    policy.load_random_state(state)
    assert torch.equal(torch.rand(3), first)


def test_a_random_state_of_another_length_is_refused():
    with pytest.raises(RolloutError, match=r"has 5056 bytes, got 3"):
        counting_loop().actor.load_random_state(np.zeros(3, np.uint8))
