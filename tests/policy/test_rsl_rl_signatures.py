"""What the earlier library's document prints of its rsl_rl policy is a promise."""

import dataclasses
import inspect

import pytest

pytest.importorskip("torch")
pytest.importorskip("rsl_rl")

from dressage.policy import BasePolicy, EnvMeta
from dressage.policy.rsl_rl_policy.rsl_rl_policy import PolicyRole, RSLRLPolicy, RSLRLVecEnvMeta

REQUIRED = inspect.Parameter.empty

METHODS = {
    "__init__": (("config", REQUIRED), ("role_type", REQUIRED)),
    "construct_network": (
        ("model_config", None),
        ("env_meta", None),
        ("args", REQUIRED),
        ("kwargs", REQUIRED),
    ),
    "get_trainable_parameters": (),
    "init_eval": (("eval_config", None), ("env_meta", None)),
    "init_train": (("train_config", REQUIRED), ("env_meta", None)),
    "load_state_dict": (("state_dict", REQUIRED),),
    "postprocess": (("env_ret", REQUIRED), ("policy_resp", REQUIRED)),
    "rollout_step": (("env_ret", REQUIRED),),
    "setup_optimizer": (("optim_cfg", REQUIRED),),
    "train": (),
    "update_dataset": (("data", REQUIRED),),
}
FIELDS = ("env_id", "action_space", "observation_space", "num_envs", "num_actions", "get_observations")


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_the_promised_parameters(name):
    parameters = list(inspect.signature(getattr(RSLRLPolicy, name)).parameters.values())[1:]
    assert tuple((p.name, p.default) for p in parameters) == METHODS[name]


def test_the_description_of_an_environment_has_the_promised_fields_first():
    fields = dataclasses.fields(RSLRLVecEnvMeta)
    assert tuple(field.name for field in fields)[: len(FIELDS)] == FIELDS
    assert all(field.default is None for field in fields)
    assert issubclass(RSLRLVecEnvMeta, EnvMeta)


def test_the_policy_has_the_promised_base_and_attributes():
    assert issubclass(RSLRLPolicy, BasePolicy)
    assert set(RSLRLPolicy.__annotations__) == {"algo", "algo_cls"}
    assert {role.name for role in PolicyRole} == {"TRAIN", "EVAL"}
