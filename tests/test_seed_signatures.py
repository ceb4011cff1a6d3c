"""What the earlier libraries' documents print is a promise: names, parameters, defaults, order of fields.

The tables below were written by hand from those documents. dressage may add parameters after the promised
ones, with defaults, and more fields.
"""

import dataclasses
import importlib
import inspect
from typing import Any

import pytest
from flax import linen as nn

import dressage
from tests.seed_defaults import SEED_DEFAULTS

REQUIRED = inspect.Parameter.empty

# Path below `dressage`: its parameters in order, each with its default.
SIGNATURES: dict[str, tuple[tuple[str, Any], ...]] = {
    "ppo.train": (("env", REQUIRED), ("config", REQUIRED), ("rng", REQUIRED)),
    "ppo.Config.EVAL_METRICS_JAX_CB": (
        ("self", REQUIRED),
        ("total_steps", REQUIRED),
        ("diagnostics", REQUIRED),
        ("eval_transitions", None),
    ),
    "ppo.Config.EVAL_METRICS_HOST_CB": (("self", REQUIRED), ("metrics", REQUIRED)),
    "ppo.Policy.apply_actor": (("self", REQUIRED), ("norm_obs", REQUIRED), ("rng", None)),
    "ppo.Policy.get_action": (("self", REQUIRED), ("obs", REQUIRED), ("rng", None)),
    "rl.model_io.save_models": (("env", REQUIRED), ("models", REQUIRED), ("folder", REQUIRED)),
    "rl.base.PolicyAdapter.component_action_probs": (("self", REQUIRED), ("obs", REQUIRED)),
    "rl.base.merge_configs": (("defaults", REQUIRED), ("overrides", REQUIRED)),
    "rl.base.infer_agent_specs": (("env", REQUIRED),),
    "rl.base.compute_gae": tuple(
        (name, REQUIRED)
        for name in (
            "rewards",
            "bootstrap_dones",
            "episode_ends",
            "values",
            "next_values",
            "gamma",
            "gae_lambda",
        )
    ),
    "rl.base.normalize_advantages": (("advantages", REQUIRED),),
    "rl.base.num_optimizer_steps_for_timesteps": tuple(
        (name, REQUIRED)
        for name in ("timesteps", "rollout_length", "learning_epochs", "requested_mini_batches")
    ),
    "rl.base.EpisodicCostTracker": (
        ("gamma", 1.0),
        ("initial_return", 0.0),
        ("running_return", 0.0),
        ("running_mass", 0.0),
        ("discount", 1.0),
        ("last_return", None),
        ("last_scale", 1.0),
    ),
    "rl.base.PolicyAdapter": (
        ("agent_id", REQUIRED),
        ("params", REQUIRED),
        ("apply_fn", REQUIRED),
        ("obs_dim", REQUIRED),
        ("action_kind", "discrete"),
        ("action_nvec", ()),
        ("action_shape", ()),
        ("action_start", ()),
    ),
    "rl.ippo.validate_ippo_config": (("overrides", None),),
    "rl.parameterized_ippo.validate_parameterized_ippo_config": (("overrides", None),),
    "rl.parameterized_ippo.ParameterizedPolicyAdapter": (
        ("agent_id", REQUIRED),
        ("params", REQUIRED),
        ("apply_fn", REQUIRED),
        ("obs_dim", REQUIRED),
        ("action_kind", "discrete"),
        ("action_nvec", ()),
        ("action_shape", ()),
        ("action_start", ()),
        ("continuous_dim", 0),
    ),
}

# Path of a learner: whether its options have a default. A seed follows, by name only.
LEARNERS = {
    "rl.ippo.IPPO": True,
    "rl.parameterized_ippo.ParameterizedIPPO": True,
    "rl.ippo_lag.IPPO_Lagrangian": False,
    "rl.icpo.ICPO": False,
    "rl.icpo.CPO": True,
}

# Path: the fields of the dataclass in order.
FIELDS: dict[str, tuple[str, ...]] = {
    "ppo.Config": tuple(SEED_DEFAULTS),
    "ppo.PPOResult": ("config", "runner_state", "metrics"),
    "ppo.Policy": (
        "act_scaling",
        "obs_scaling",
        "model",
        "hidden_activation",
        "output_activation",
        "state_independent_std",
    ),
    "ppo.RunnerState": ("train_state", "env_state", "last_obs", "rng"),
    "rl.base.AgentSpec": (
        "agent_id",
        "obs_dim",
        "action_dim",
        "action_kind",
        "action_nvec",
        "action_shape",
        "action_start",
    ),
    "rl.base.TrainResult": ("history", "metrics", "policies", "agent_states"),
}

PROPERTIES = ("ppo.PPOResult.obs_scaling", "ppo.PPOResult.act_scaling", "ppo.PPOResult.policy")

BASES = {
    "ppo.Config": "ppo.Base",
    "ppo.PPOResult": "ppo.Base",
    "ppo.Policy": "ppo.Base",
    "ppo.RunnerState": "ppo.Base",
    "rl.parameterized_ippo.ParameterizedPolicyAdapter": "rl.base.PolicyAdapter",
    "rl.icpo.CPO": "rl.icpo.ICPO",
}

MODULES = (
    "rl.ippo.ActorCritic",
    "rl.parameterized_ippo.ParameterizedActorCritic",
    "rl.ippo_lag.ActorCriticWithCost",
    "rl.icpo.CategoricalActor",
    "rl.icpo.ValueNetwork",
)

# Path of a network: the parameters that may stand by position, then those by name only; none has a default.
NETWORKS = {
    "rl.icpo.CategoricalActor": (("obs_dim", "action_dim"), ("hidden_sizes", "activation")),
    "rl.icpo.ValueNetwork": (("obs_dim",), ("hidden_sizes", "activation")),
}

NAMES = (
    "ppo.Base",
    "ppo.Diagnostics",
    "ppo.GraphState",
    "ppo.NormalizeVec",
    "ppo.SquashActionWrapper",
    "ppo.SquashState",
    "ppo.Transition",
)


def named(path: str) -> Any:
    found = dressage
    for name in path.split("."):
        if inspect.ismodule(found) and not hasattr(found, name):
            found = importlib.import_module(f"{found.__name__}.{name}")
        else:
            found = inspect.getattr_static(found, name) if inspect.isclass(found) else getattr(found, name)
    return found


def has_default(field: dataclasses.Field) -> bool:
    return field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING


@pytest.mark.parametrize("path", SIGNATURES)
def test_the_promised_parameters_come_first_in_order_and_with_their_defaults(path):
    promised = SIGNATURES[path]
    parameters = list(inspect.signature(named(path)).parameters.values())[: len(promised)]
    assert [(parameter.name, parameter.default) for parameter in parameters] == list(promised)


@pytest.mark.parametrize("path", SIGNATURES)
def test_the_promised_parameters_may_be_given_by_position_or_by_name(path):
    promised = SIGNATURES[path]
    parameters = list(inspect.signature(named(path)).parameters.values())[: len(promised)]
    assert {parameter.kind for parameter in parameters} == {inspect.Parameter.POSITIONAL_OR_KEYWORD}


@pytest.mark.parametrize("path", SIGNATURES)
def test_every_added_parameter_has_a_default(path):
    added = list(inspect.signature(named(path)).parameters.values())[len(SIGNATURES[path]) :]
    assert [parameter.name for parameter in added if parameter.default is REQUIRED] == []


@pytest.mark.parametrize("path", LEARNERS)
def test_a_learner_takes_its_options_and_by_name_a_seed(path):
    cfg, seed, *added = inspect.signature(named(path)).parameters.values()
    assert (cfg.name, cfg.default) == ("cfg", None if LEARNERS[path] else REQUIRED)
    assert (seed.name, seed.default, seed.kind) == ("seed", 0, inspect.Parameter.KEYWORD_ONLY)
    refused = [parameter for parameter in added if parameter.kind is parameter.VAR_KEYWORD]
    assert all(parameter.default is not REQUIRED for parameter in added if parameter not in refused)


@pytest.mark.parametrize("path", MODULES)
def test_a_promised_network_is_a_flax_module(path):
    assert issubclass(named(path), nn.Module)


@pytest.mark.parametrize("path", NETWORKS)
def test_a_network_takes_its_sizes(path):
    needed = [p for p in inspect.signature(named(path)).parameters.values() if p.default is REQUIRED]
    by_name = [p.name for p in needed if p.kind is inspect.Parameter.KEYWORD_ONLY]
    assert (tuple(p.name for p in needed if p.name not in by_name), tuple(by_name)) == NETWORKS[path]


@pytest.mark.parametrize("path", FIELDS)
def test_the_promised_fields_come_first_and_in_order(path):
    fields = dataclasses.fields(named(path))[: len(FIELDS[path])]
    assert tuple(field.name for field in fields) == FIELDS[path]


@pytest.mark.parametrize("path", FIELDS)
def test_every_added_field_has_a_default(path):
    added = dataclasses.fields(named(path))[len(FIELDS[path]) :]
    assert [field.name for field in added if not has_default(field)] == []


@pytest.mark.parametrize(("option", "default"), SEED_DEFAULTS.items())
def test_an_option_of_ppo_has_the_promised_default(option, default):
    value = getattr(dressage.ppo.Config(), option)
    assert value == default
    assert isinstance(value, bool) == isinstance(default, bool)


@pytest.mark.parametrize("path", PROPERTIES)
def test_a_promised_property_is_a_property(path):
    assert isinstance(named(path), property)


@pytest.mark.parametrize("path", BASES)
def test_a_class_has_the_base_that_was_printed(path):
    assert issubclass(named(path), named(BASES[path]))


@pytest.mark.parametrize("path", NAMES)
def test_a_promised_name_can_be_imported(path):
    assert inspect.isclass(named(path))
