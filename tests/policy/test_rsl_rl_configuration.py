import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("rsl_rl")

from rsl_rl.algorithms import PPO  # noqa: E402
from tensordict import TensorDict  # noqa: E402

from dressage.errors import ConfigError  # noqa: E402
from dressage.policy import EnvMeta, PolicyConfig, PolicyRole, TrainConfig  # noqa: E402
from dressage.policy.rsl_rl_policy.env_meta import ExampleObservation  # noqa: E402
from dressage.policy.rsl_rl_policy.release import check_release  # noqa: E402
from dressage.policy.rsl_rl_policy.rsl_rl_policy import RSLRLPolicy, RSLRLVecEnvMeta  # noqa: E402
from tests.policy.rsl_rl_configs import ppo_config, recurrent_config  # noqa: E402

EXAMPLE = ExampleObservation(
    TensorDict({"policy": torch.zeros(1, 3), "extra": torch.zeros(1, 2)}, batch_size=[1])
)
META = RSLRLVecEnvMeta(num_envs=4, num_actions=1, get_observations=EXAMPLE)


def build(config, meta=META):
    policy = RSLRLPolicy(PolicyConfig(policy_kwargs=config), PolicyRole.TRAIN)
    policy.init_train(TrainConfig(), meta)
    return policy


def without(config, name):
    return {key: value for key, value in config.items() if key != name}


@pytest.mark.parametrize("name", ["DDPG", "SAC", "TD3"])
def test_an_algorithm_that_rsl_rl_lacks_is_refused_with_those_it_has(name):
    with pytest.raises(ConfigError, match=f"rsl_rl has no algorithm '{name}'. It has PPO and Distillation."):
        build(ppo_config(class_name=name))


def test_a_misspelled_algorithm_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match="no algorithm 'PP0'.*Did you mean 'PPO'"):
        build(ppo_config(class_name="PP0"))


def test_a_class_that_is_no_algorithm_is_refused():
    with pytest.raises(ConfigError, match="'torch.nn:Linear' is neither PPO nor Distillation"):
        build(ppo_config(class_name="torch.nn:Linear"))


@pytest.mark.parametrize("named", ["rsl_rl.algorithms:PPO", "rsl_rl.algorithms.PPO", PPO])
def test_qualified_names_and_classes_are_taken_as_rsl_rl_takes_them(named):
    assert build(ppo_config(class_name=named)).algo_cls is PPO


def test_an_observation_group_that_the_environment_lacks_is_refused_with_those_it_gives():
    config = ppo_config() | {"obs_groups": {"actor": ["polcy"], "critic": ["policy"]}}
    with pytest.raises(ConfigError, match=r"obs_groups\['actor'\].*'polcy'.*policy, extra.*mean 'policy'"):
        build(config)


def test_an_empty_observation_set_is_refused():
    config = ppo_config() | {"obs_groups": {"actor": [], "critic": ["policy"]}}
    with pytest.raises(
        ConfigError, match=r"obs_groups\['actor'\] must be a list of observation groups and not"
    ):
        build(config)


@pytest.mark.parametrize("name", ["num_steps_per_env", "obs_groups", "actor", "critic", "algorithm"])
def test_a_missing_part_is_named(name):
    with pytest.raises(ConfigError, match=f"lacks '{name}'"):
        build(without(ppo_config(), name))


def test_a_configuration_of_rsl_rls_fourth_release_is_refused_with_what_took_its_place():
    config = without(ppo_config(), "actor") | {"policy": {"class_name": "ActorCritic"}}
    with pytest.raises(
        ConfigError, match="has 'policy', which rsl_rl took up to its fourth.*'actor' and 'critic'"
    ):
        build(config)


def test_a_misspelled_option_of_the_algorithm_is_refused_with_the_nearest():
    with pytest.raises(
        ConfigError, match=r"PPO \(algorithm\) has no option 'clip_parm'. Did you mean 'clip_param'"
    ):
        build(ppo_config(clip_parm=0.1))


def test_a_misspelled_option_of_a_model_is_refused_with_the_nearest():
    config = ppo_config()
    config["actor"] |= {"hiden_dims": [4]}
    with pytest.raises(ConfigError, match=r"MLPModel \(actor\) has no option 'hiden_dims'. Did you mean"):
        build(config)


def test_a_model_class_that_does_not_exist_is_refused():
    config = ppo_config()
    config["critic"] |= {"class_name": "no.such:Model"}
    with pytest.raises(ConfigError, match="class_name of 'critic' leads nowhere"):
        build(config)


def test_a_model_without_a_class_is_refused():
    config = ppo_config()
    config["critic"] = {"hidden_dims": [4]}
    with pytest.raises(ConfigError, match="'critic' must be a mapping with a class_name"):
        build(config)


@pytest.mark.parametrize("steps", [0, 2.5, "24", True])
def test_a_number_of_steps_that_is_none_is_refused(steps):
    with pytest.raises(ConfigError, match="num_steps_per_env must be a whole number of steps, at least 1"):
        build(ppo_config(steps=steps))


def test_more_minibatches_than_samples_are_refused():
    with pytest.raises(ConfigError, match="num_mini_batches must lie in 1 to 32, the number of samples"):
        build(ppo_config(steps=8, num_mini_batches=33))


def test_more_minibatches_than_environments_are_refused_for_recurrent_models():
    with pytest.raises(ConfigError, match="num_mini_batches must lie in 1 to 4, the number of environments"):
        build(recurrent_config(num_mini_batches=5))


def test_a_curious_learner_needs_the_control_period():
    rnd = {"weight": 1.0, "num_outputs": 2, "predictor_hidden_dims": [4], "target_hidden_dims": [4]}
    config = ppo_config(rnd_cfg=rnd)
    config["obs_groups"]["rnd_state"] = ["policy"]
    with pytest.raises(ConfigError, match="scales its reward by the control period.*step_dt=0.02"):
        build(config)


@pytest.mark.parametrize("lacking", ["num_envs", "num_actions", "get_observations"])
def test_an_incomplete_description_of_the_environment_is_refused(lacking):
    given = {"num_envs": 4, "num_actions": 1, "get_observations": EXAMPLE} | {lacking: None}
    with pytest.raises(ConfigError, match=f"RSLRLVecEnvMeta lacks {lacking}"):
        build(ppo_config(), RSLRLVecEnvMeta(**given))


def test_a_description_of_another_kind_is_refused():
    with pytest.raises(ConfigError, match="needs an RSLRLVecEnvMeta as env_meta, got EnvMeta"):
        build(ppo_config(), EnvMeta())


def test_observations_without_groups_are_refused_with_how_to_make_them():
    meta = RSLRLVecEnvMeta(num_envs=4, num_actions=1, get_observations=lambda: torch.zeros(4, 3))
    with pytest.raises(ConfigError, match="must return a TensorDict of observation groups, got Tensor"):
        build(ppo_config(), meta)


def test_further_arguments_of_construct_network_are_refused():
    policy = RSLRLPolicy(PolicyConfig(policy_kwargs=ppo_config()), PolicyRole.TRAIN)
    with pytest.raises(ConfigError, match="takes model_config and env_meta and nothing else, got 3, depth"):
        policy.construct_network(None, META, 3, depth=2)


def test_a_model_configuration_lies_over_the_training_configuration():
    policy = RSLRLPolicy(PolicyConfig(policy_kwargs=ppo_config()), PolicyRole.TRAIN)
    policy.construct_network({"actor": {"hidden_dims": [5]}}, META)
    assert policy.algo.actor.mlp[0].out_features == 5
    assert policy.algo.critic.mlp[0].out_features == 16


def test_what_the_runner_reads_besides_is_accepted_as_it_is():
    extras = {
        "experiment_name": "x",
        "run_name": "y",
        "logger": "tensorboard",
        "seed": 3,
        "max_iterations": 9,
    }
    assert build(ppo_config() | extras).num_steps == 8


@pytest.mark.parametrize("release", ["5.4.9", "5.6.0", "6.0.0", "3.1.2"])
def test_a_release_outside_the_tested_range_is_refused_with_the_range(release):
    with pytest.raises(ConfigError, match=rf"rsl-rl-lib {release} is installed.*tested with 5.5 up to.*5.6"):
        check_release(release)


def test_the_installed_release_is_one_of_those_tested():
    assert check_release().startswith("5.5")


def test_ranks_without_a_process_group_are_refused():
    policy = RSLRLPolicy(PolicyConfig(policy_kwargs=ppo_config()), PolicyRole.TRAIN)
    with pytest.raises(ConfigError, match="asks for 2 learners, and torch.distributed's default group has 1"):
        policy.init_train(TrainConfig(rank=0, world_size=2), META)
