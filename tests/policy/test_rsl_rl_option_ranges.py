"""Each entry of rsl_rl's configuration is checked before anything is built; what its runner takes is kept."""

import copy
import functools
import math

import pytest
import yaml

torch = pytest.importorskip("torch")
pytest.importorskip("rsl_rl")

from rsl_rl.algorithms import PPO, Distillation  # noqa: E402
from rsl_rl.extensions import RandomNetworkDistillation, Symmetry  # noqa: E402
from rsl_rl.models import CNNModel, MLPModel, RNNModel  # noqa: E402
from rsl_rl.modules import (  # noqa: E402
    CNN,
    BetaDistribution,
    GaussianDistribution,
    HeteroscedasticGaussianDistribution,
)
from rsl_rl.runners import OnPolicyRunner  # noqa: E402
from rsl_rl.utils import resolve_nn_activation, resolve_optimizer  # noqa: E402

from dressage.cli.nested_options import read_config  # noqa: E402
from dressage.cli.rsl_rl import RslRl  # noqa: E402
from dressage.errors import ConfigError  # noqa: E402
from dressage.policy import PolicyConfig, PolicyRole, TrainConfig  # noqa: E402
from dressage.policy.base_policy import EvalConfig  # noqa: E402
from dressage.policy.rsl_rl_policy.configuration import FILLED_IN, check_configuration  # noqa: E402
from dressage.policy.rsl_rl_policy.option_ranges import ACTIVATIONS, OPTIMIZERS, RANGES  # noqa: E402
from dressage.policy.rsl_rl_policy.rsl_rl_policy import RSLRLPolicy  # noqa: E402
from dressage.policy.rsl_rl_policy.vec_env import VecEnvRollouts  # noqa: E402
from dressage.policy.torch_envs.catalog import GENERAL, SHIPPED  # noqa: E402
from dressage.policy.torch_envs.pendulum import Pendulum  # noqa: E402
from tests.policy.rsl_rl_configs import distillation_config, ppo_config, recurrent_config  # noqa: E402
from tests.policy.test_runner_equality import CAMERA, RND, SYMMETRY  # noqa: E402

RND_PPO = ppo_config(rnd_cfg=RND)
LINEAR = {"mode": "linear", "initial_step": 0, "final_step": 9, "final_value": 0.0}
BETA = {"class_name": "BetaDistribution"}


def changed(config, path, value):
    """Return a configuration with one entry changed; `...` takes it out."""
    own = copy.deepcopy(config)
    *owners, name = path.split(".")
    part = functools.reduce(lambda mapping, key: mapping[key], owners, own)
    if value is ...:
        del part[name]
    else:
        part[name] = value
    return own


def with_camera(config):
    return config | {"actor": config["actor"] | CAMERA}


REFUSED = [
    # Names
    (
        ppo_config(),
        "num_step_per_env",
        24,
        "configuration has no option 'num_step_per_env'. Did you mean 'num_st",
    ),
    (ppo_config(), "zzz", 1, "rsl_rl's training configuration has no option 'zzz'. Known: actor, algorithm,"),
    (ppo_config(), "obs_groups.acter", ["policy"], "obs_groups has no set 'acter'; rsl_rl's are .* 'actor'"),
    (ppo_config(), "obs_groups.policy", ["policy"], "no set 'policy'.*What was 'policy' is 'actor' since"),
    (
        ppo_config(),
        "algorithm.discount",
        0.9,
        r"PPO \(algorithm\) has no option 'discount'. Did you mean 'gamma'",
    ),
    (ppo_config(), "actor.distribution_cfg.init_sdt", 1.0, r"no option 'init_sdt'. Did you mean 'init_std'"),
    (ppo_config(), "critic.class_name", "MLPModle", "class_name of 'critic' leads nowhere.*mean 'MLPModel'"),
    (ppo_config(), "actor.distribution_cfg.class_name", "Gausian", "'actor.distribution_cfg' leads nowhere"),
    (
        RND_PPO,
        "algorithm.rnd_cfg.wieght",
        1.0,
        r"\(algorithm.rnd_cfg\) has no option 'wieght'.*mean 'weight'",
    ),
    (RND_PPO, "algorithm.rnd_cfg.weight", ..., "algorithm.rnd_cfg lacks 'weight'"),
    (RND_PPO, "algorithm.rnd_cfg.num_outputs", ..., r"\(algorithm.rnd_cfg\) lacks 'num_outputs'"),
    (
        with_camera(ppo_config()),
        "actor.cnn_cfg.kernal_size",
        3,
        r"CNN \(actor.cnn_cfg\) has no option 'kernal_si",
    ),
    (
        with_camera(ppo_config()),
        "actor.cnn_cfg.output_channels",
        ...,
        r"CNN \(actor.cnn_cfg\) lacks 'output_chan",
    ),
    (
        distillation_config(),
        "algorithm.gradent_length",
        4,
        "no option 'gradent_length'. Did you mean 'gradient_l",
    ),
    # Values
    (ppo_config(), "algorithm.gamma", 1.5, r"'gamma' must be a finite number >= 0 and <= 1, got 1.5"),
    (
        ppo_config(),
        "algorithm.gamma",
        "0.9",
        "'gamma' must be .* got '0.9'. It is a text: leave out the quotes",
    ),
    (ppo_config(), "algorithm.learning_rate", "1e-3", "'learning_rate' must be .*leave out the quotes"),
    (ppo_config(), "algorithm.learning_rate", -1, "'learning_rate' must be a finite number >= 0, got -1"),
    (
        ppo_config(),
        "algorithm.schedule",
        "adaptve",
        "one of 'adaptive', 'fixed', got 'adaptve'.*mean 'adaptive'",
    ),
    (ppo_config(), "algorithm.schedule", "Adaptive", "got 'Adaptive'. Did you mean 'adaptive'"),
    (
        ppo_config(),
        "algorithm.desired_kl",
        None,
        "'desired_kl' must be .*'adaptive', got None.*schedule: fixed",
    ),
    (
        ppo_config(),
        "algorithm.num_learning_epochs",
        0,
        "'num_learning_epochs' must be an integer >= 1, got 0",
    ),
    (ppo_config(), "algorithm.num_mini_batches", "4", "'num_mini_batches' must be an integer >= 1, got '4'"),
    (ppo_config(), "algorithm.optimizer", "adamm", "one of 'adam', 'adamw'.*Did you mean 'adam'"),
    (
        ppo_config(),
        "algorithm.use_clipped_value_loss",
        "no",
        "'use_clipped_value_loss' must be True or False",
    ),
    (ppo_config(), "algorithm.rnd_cfg", 3, "'rnd_cfg' must be a mapping from names to values or None, got 3"),
    (ppo_config(), "algorithm.max_grad_norm", math.nan, "'max_grad_norm' must be .*> 0, or inf, got nan"),
    (
        ppo_config(),
        "actor.hidden_dims",
        [0],
        r"'hidden_dims' must be a sequence of integers >= 1, or -1, got \[0\]",
    ),
    (ppo_config(), "actor.hidden_dims", [], r"'hidden_dims' must hold at least one number, got \[\]"),
    (
        ppo_config(),
        "actor.hidden_dims",
        64,
        "'hidden_dims' must be a sequence of integers >= 1, or -1, got 64",
    ),
    (
        ppo_config(),
        "critic.activation",
        "eluu",
        r"\(critic\) option 'activation' must be .*Did you mean 'elu'",
    ),
    (ppo_config(), "actor.distribution_cfg.init_std", 0.0, "'init_std' must be a finite number > 0, got 0.0"),
    (ppo_config(), "actor.distribution_cfg.std_type", "Log", "'std_type' must be one of 'scalar', 'log'"),
    (
        ppo_config(),
        "actor.distribution_cfg.std_range",
        [1.0],
        "'std_range' must be two numbers, the lower one",
    ),
    (
        ppo_config(),
        "actor.distribution_cfg",
        BETA | {"action_range": [1, -1]},
        "must be two numbers, the lower",
    ),
    (ppo_config(), "actor.distribution_cfg", None, "'actor' has no distribution_cfg.*GaussianDistribution"),
    (
        ppo_config(),
        "actor.distribution_cfg",
        {"init_std": 1},
        "'actor.distribution_cfg' must be a mapping with a c",
    ),
    (ppo_config(), "obs_groups", None, "obs_groups must be a mapping from actor, critic"),
    (ppo_config(), "obs_groups.actor", None, r"obs_groups\['actor'\] must be a list of observation groups"),
    (ppo_config(), "torch_compile_mode", "max-autotune", "'torch_compile_mode' must be one of 'default'"),
    (recurrent_config(), "actor.rnn_type", "lstmm", "'rnn_type' must be one of 'lstm', 'gru', got 'lstmm'"),
    (recurrent_config(), "critic.rnn_hidden_dim", 0, "'rnn_hidden_dim' must be an integer >= 1, got 0"),
    (with_camera(ppo_config()), "actor.cnn_cfg.stride", [1, 0], "'stride' must be an integer >= 1, got 0"),
    (with_camera(ppo_config()), "actor.cnn_cfg.padding", "zero", "'padding' must be one of .*mean 'zeros'"),
    (
        RND_PPO,
        "algorithm.rnd_cfg.weight_schedule",
        {"mode": "liner"},
        "'mode' must be .* Did you mean 'linear'",
    ),
    (
        RND_PPO,
        "algorithm.rnd_cfg.weight_schedule",
        {"mode": "step"},
        "of mode 'step' lacks 'final_step', 'final_v",
    ),
    (
        recurrent_config(symmetry_cfg=SYMMETRY),
        "seed",
        1,
        "augments no recurrent models by symmetry, and 'actor'",
    ),
    (
        ppo_config(symmetry_cfg=SYMMETRY),
        "algorithm.symmetry_cfg.data_augmentation_func",
        None,
        "symmetry_cfg.data_augmentation_func must be a function, or its name as .*, got None",
    ),
    (
        ppo_config(symmetry_cfg=SYMMETRY),
        "algorithm.symmetry_cfg.data_augmentation_func",
        "math:sine",
        "data_augmentation_func must be a function, or its name as .*, got 'math:sine'",
    ),
    (
        ppo_config(symmetry_cfg=SYMMETRY),
        "algorithm.symmetry_cfg.data_augmentation_func",
        "math:pi",
        "data_augmentation_func must be a function",
    ),
    (distillation_config(), "algorithm.loss_type", "l2", "'loss_type' must be one of 'mse', 'huber'"),
]


@pytest.mark.parametrize(
    ("config", "path", "value", "text"), REFUSED, ids=[f"{r[1]}={r[2]}" for r in REFUSED]
)
def test_a_wrong_entry_is_refused_with_its_name_and_what_is_allowed(config, path, value, text):
    with pytest.raises(ConfigError, match=text):
        check_configuration(changed(config, path, value))


@pytest.mark.parametrize("config", [None, [], "PPO"])
def test_what_is_no_mapping_is_refused(config):
    with pytest.raises(ConfigError, match="training configuration must be a mapping from names to values"):
        RSLRLPolicy(PolicyConfig(policy_kwargs=config), PolicyRole.TRAIN)


# What rsl_rl takes


RUNNERS_OWN = {
    "run_name": "",
    "check_for_nan": True,
    "torch_compile_mode": None,
    "logger": {"class_name": "WandbLogWriter", "project_name": "x"},
    "wandb_project": "x",
    "neptune_project": "x",
    "multi_gpu": None,
}
CALLERS_OWN = {
    "class_name": "OnPolicyRunner",
    "seed": 42,
    "device": "cuda:0",
    "max_iterations": 1500,
    "empirical_normalization": None,
    "clip_actions": None,
    "experiment_name": "walk",
    "resume": False,
    "load_run": ".*",
    "load_checkpoint": "model_.*.pt",
    "wandb_tags": (),
    "upload_model": True,
}

ACCEPTED = {
    "shipped": dict(GENERAL),
    "the runner's entries": ppo_config() | RUNNERS_OWN,
    "its callers' entries": ppo_config() | CALLERS_OWN,
    "tuples for lists": changed(
        changed(ppo_config(), "obs_groups", {"actor": ("policy",), "critic": ("policy",)}),
        "actor.hidden_dims",
        (8, 8),
    ),
    "a hidden layer as wide as the input": changed(ppo_config(), "actor.hidden_dims", [-1, 8]),
    "any case": changed(
        changed(ppo_config(optimizer="Adam"), "actor.activation", "ELU"), "critic.activation", "Tanh"
    ),
    "no clipping of gradients": ppo_config(max_grad_norm=math.inf),
    "a fixed schedule without a divergence": ppo_config(schedule="fixed", desired_kl=None),
    "a whole number for a fraction": ppo_config(gamma=1),
    "no extensions": ppo_config(rnd_cfg=None, symmetry_cfg=None, share_cnn_encoders=False),
    "a beta distribution": changed(ppo_config(), "actor.distribution_cfg", BETA | {"action_range": [-2, 2]}),
    "a spread that depends on the state": changed(
        ppo_config(), "actor.distribution_cfg.class_name", "HeteroscedasticGaussianDistribution"
    ),
    "bounds of the spread": changed(ppo_config(), "actor.distribution_cfg.std_range", [0.0, math.inf]),
    "models of both algorithms": distillation_config() | ppo_config(),
    "a schedule of the curiosity": changed(RND_PPO, "algorithm.rnd_cfg.weight_schedule", LINEAR),
    "an observation set for curiosity that is off": changed(ppo_config(), "obs_groups.rnd_state", ["policy"]),
}


@pytest.mark.filterwarnings("ignore:The observation configuration dictionary:UserWarning")
@pytest.mark.parametrize("name", ACCEPTED)
def test_what_rsl_rls_runner_takes_is_taken_as_it_is(name):
    config = ACCEPTED[name]
    env = Pendulum(num_envs=4, seed=0)
    theirs = OnPolicyRunner(env, copy.deepcopy(config | {"save_interval": 1}), log_dir=None)
    theirs.learn(1)
    before = copy.deepcopy(config)
    ours = RSLRLPolicy(PolicyConfig(policy_kwargs=config), PolicyRole.TRAIN)
    ours.init_train(TrainConfig(), VecEnvRollouts(env, "pendulum").meta())
    assert ours.algo.gamma == theirs.alg.gamma
    assert ours.algo.actor.state_dict().keys() == theirs.alg.actor.state_dict().keys()
    assert config == before


@pytest.mark.filterwarnings("ignore:The product of 'num_learning_epochs':UserWarning")
def test_distillation_takes_the_entries_of_ppo_too_as_rsl_rls_does():
    config = distillation_config()
    config["algorithm"] |= {"gamma": 0.9, "clip_param": 0.2}
    assert check_configuration(config)["algorithm"]["gradient_length"] == 4


def test_whole_numbers_that_a_file_writes_as_fractions_become_whole():
    config = ppo_config(num_learning_epochs=2.0)
    found = check_configuration(config)["algorithm"]["num_learning_epochs"]
    assert (found, type(found)) == (2, int) and config["algorithm"]["num_learning_epochs"] == 2.0


class Curious(PPO):
    """An algorithm of a user's own with an option of its own, for a configuration with entries of its own."""

    def __init__(self, *args, courage=1.0, **kwargs):
        super().__init__(*args, **kwargs)


def test_a_class_of_the_users_own_may_have_entries_of_its_own():
    config = ppo_config(class_name=Curious, courage=2.0) | {"amp": {"discriminator": 3}}
    config["obs_groups"]["amp"] = ["policy"]
    assert check_configuration(config)["algorithm"]["courage"] == 2.0
    with pytest.raises(ConfigError, match="'gamma' must be a finite number"):
        check_configuration(changed(config, "algorithm.gamma", 2))


@pytest.mark.parametrize("name", SHIPPED)
def test_the_configurations_of_the_shipped_tasks_are_taken(name):
    assert check_configuration(SHIPPED[name].config)["num_steps_per_env"] == 24


# The declarations against rsl_rl itself


def test_activations_and_optimisers_are_those_that_rsl_rl_resolves():
    for name in ACTIVATIONS:
        resolve_nn_activation(name)
    for name in OPTIMIZERS:
        resolve_optimizer(name)
    with pytest.raises(ValueError, match=str(list(ACTIVATIONS)).replace("[", r"\[").replace("]", r"\]")):
        resolve_nn_activation("none of these")
    with pytest.raises(ValueError, match=str(list(OPTIMIZERS)).replace("[", r"\[").replace("]", r"\]")):
        resolve_optimizer("none of these")


CLASSES = (
    *(PPO, Distillation, MLPModel, RNNModel, CNNModel, CNN, GaussianDistribution),
    *(HeteroscedasticGaussianDistribution, BetaDistribution, RandomNetworkDistillation, Symmetry),
)


@pytest.mark.parametrize("owner", CLASSES, ids=lambda owner: owner.__name__)
def test_every_argument_of_rsl_rls_classes_is_declared(owner):
    import inspect

    taken = {name for names in FILLED_IN.values() for name in names} | {"kwargs", "data_augmentation_func"}
    arguments = {
        name
        for base in (owner, MLPModel)
        if issubclass(owner, base)
        for name in inspect.signature(base).parameters
    }
    declared = {option.name for base in owner.__mro__ for option in RANGES.get(base.__name__, ())}
    assert arguments - taken <= declared


# Files


def test_numbers_with_an_exponent_are_numbers_in_a_file_and_those_in_quotes_are_texts(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(
        "a: 1e-3\nb: '1e-3'\nc: 2.5E4\nd: 1.0e-3\ne: -.5e1\nf: [3e2]\ng: 1e\nnum_steps_per_env: 8\n"
    )
    found = read_config(path, RslRl())["rsl_rl"]
    assert found | {"num_steps_per_env": 8} == {
        **{"a": 1e-3, "b": "1e-3", "c": 2.5e4, "d": 1e-3, "e": -5.0, "f": [300.0], "g": "1e"},
        "num_steps_per_env": 8,
    }


def test_a_file_as_rsl_rls_documentation_has_it_is_read_beneath_its_runner(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({"runner": ppo_config()}))
    assert RslRl().resolve(read_config(path, RslRl()))["rsl_rl"] == ppo_config()


def test_a_file_of_options_alone_leaves_rsl_rls_configuration_as_it_is(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("num_envs: 8\nworkers: 2\n")
    assert read_config(path, RslRl()) == {"num_envs": 8, "workers": 2}


def test_options_among_the_entries_of_rsl_rl_are_refused_with_where_they_go(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(ppo_config() | {"num_envs": 8}))
    with pytest.raises(ConfigError, match="has 'num_envs', an option of dressage.*--set num_envs=VALUE"):
        read_config(path, RslRl())


# The policy's own configuration


@pytest.mark.parametrize("kind", ["SAC", "DDPG", "PPO"])
def test_another_type_of_policy_is_refused_with_where_the_algorithm_stands(kind):
    with pytest.raises(
        ConfigError, match=rf"type '{kind}' is another policy.*'class_name'\]: PPO or Distill"
    ):
        RSLRLPolicy(PolicyConfig(type=kind, policy_kwargs=ppo_config()), PolicyRole.TRAIN)


class Walker(RSLRLPolicy):
    pass


@pytest.mark.parametrize("kind", ["Walker", "RSLRLPolicy"])
def test_a_derived_policy_goes_by_its_own_name_and_by_that_of_its_base(kind):
    assert Walker(PolicyConfig(type=kind, policy_kwargs=ppo_config()), PolicyRole.EVAL).config.type == kind


@pytest.mark.parametrize("name", ["train", "TRAIN", PolicyRole.TRAIN])
def test_a_role_may_be_given_by_its_name(name):
    assert RSLRLPolicy(PolicyConfig(policy_kwargs=ppo_config()), name).role_type is PolicyRole.TRAIN


@pytest.mark.parametrize("name", ["trian", 1, None])
def test_a_role_that_does_not_exist_is_refused(name):
    with pytest.raises(ConfigError, match="must be PolicyRole.TRAIN or PolicyRole.EVAL, got"):
        RSLRLPolicy(PolicyConfig(policy_kwargs=ppo_config()), name)


@pytest.mark.parametrize("device", ["gpu", "", None, "cuda:0"])
def test_a_device_that_is_not_there_is_refused(device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="PolicyConfig device .*'cpu'"):
        RSLRLPolicy(PolicyConfig(policy_kwargs=ppo_config(), device=device), PolicyRole.TRAIN)


def test_too_few_environments_for_the_default_number_of_minibatches_are_refused():
    config = recurrent_config()
    del config["algorithm"]["num_mini_batches"]
    policy = RSLRLPolicy(PolicyConfig(policy_kwargs=config), PolicyRole.EVAL)
    with pytest.raises(ConfigError, match="num_mini_batches must lie in 1 to 2, .* got 4"):
        policy.init_eval(EvalConfig(), VecEnvRollouts(Pendulum(num_envs=2, seed=0), "pendulum").meta())


def test_what_rsl_rl_refuses_itself_is_told_as_a_mistake_of_the_configuration():
    config = with_camera(ppo_config())
    config["obs_groups"]["actor"] = ["policy"]
    policy = RSLRLPolicy(PolicyConfig(policy_kwargs=config), PolicyRole.EVAL)
    with pytest.raises(ConfigError, match="rsl_rl refuses its training configuration: "):
        policy.init_eval(EvalConfig(), VecEnvRollouts(Pendulum(num_envs=2, seed=0), "pendulum").meta())


def test_a_file_that_mjlab_wrote_is_read_and_its_entries_of_other_models_are_left_out(tmp_path):
    # Its runner takes these out of the dictionary before rsl_rl sees it; `yaml.dump` tags its tuples.
    unused = {"cnn_cfg": None, "rnn_type": None, "rnn_hidden_dim": 256, "rnn_num_layers": 1}
    config = ppo_config() | {"wandb_tags": ()}
    for name in ("actor", "critic"):
        config[name] = config[name] | unused | {"hidden_dims": tuple(config[name]["hidden_dims"])}
    path = tmp_path / "agent.yaml"
    path.write_text(yaml.dump(config))
    assert "!!python/tuple" in path.read_text()
    checked = check_configuration(read_config(path, RslRl())["rsl_rl"])
    plain = check_configuration(ppo_config())
    for name in ("actor", "critic"):
        assert checked[name] | {"hidden_dims": tuple(checked[name]["hidden_dims"])} == plain[name]


def test_a_recurrent_model_keeps_its_memory_and_leaves_out_convolutions_it_has_not():
    config = recurrent_config()
    config["actor"] = config["actor"] | {"cnn_cfg": None}
    assert check_configuration(config)["actor"] == check_configuration(recurrent_config())["actor"]
