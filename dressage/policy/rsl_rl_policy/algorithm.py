"""Owns building an rsl_rl algorithm: it has to fit the environment, and its models are made quietly.

The configuration is rsl_rl's own. Construction writes into it and prints, so it gets a copy and no terminal.
"""

import contextlib
import inspect
import io
import itertools
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from tensordict import TensorDict

from dressage.errors import ConfigError
from dressage.policy.rsl_rl_policy.configuration import (
    Algorithm,
    Config,
    algorithm_class,
    check_configuration,
    is_rsl_rls,
    model_names,
    near,
    resolve,
)
from dressage.policy.rsl_rl_policy.env_meta import CheckedMeta
from dressage.policy.rsl_rl_policy.layout import numbers_of


def construct(config: Mapping[str, Any], env: CheckedMeta, device: str, ranks: Config | None) -> Algorithm:
    """Build an algorithm with its models and its storage.

    Args:
        config: rsl_rl's training configuration; left unchanged.
        env: What the models are for.
        device: Where they live.
        ranks: `global_rank`, `local_rank` and `world_size` where several learners train together.

    Returns:
        The algorithm; the parameters are drawn from torch's own random stream, as rsl_rl's runner does.

    Raises:
        ConfigError: If the configuration does not fit rsl_rl or the environment.
    """
    own = check_configuration(config)
    own["multi_gpu"] = ranks
    found = algorithm_class(own)
    _check_fits(own, found, env)
    example = env.example[:1].expand(env.num_envs).to(device)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            built = found.construct_algorithm(example, _face(own, env), own, device)
    except ValueError as error:
        raise ConfigError(f"rsl_rl refuses its training configuration: {error}") from error
    if getattr(built, "symmetry", None) is not None and env.meta.env is not None:
        built.symmetry.env = env.meta.env
    return built


def _check_fits(config: Config, algorithm: type[Algorithm], env: CheckedMeta) -> None:
    """Refuse what an environment does not fit."""
    _check_groups(config["obs_groups"], env.example)
    _check_numbers(config, algorithm, env.example)
    _check_minibatches(config, algorithm, env.num_envs)


def _check_groups(groups: Mapping[str, Sequence[str]], example: TensorDict) -> None:
    for name, members in groups.items():
        known = [str(group) for group in example.keys()]
        unknown = [member for member in members if member not in known]
        if unknown:
            raise ConfigError(
                f"obs_groups[{name!r}] names the observation group {unknown[0]!r}, which the environment "
                f"does not give. It gives: {', '.join(known)}.{near(unknown[0], known)}"
            )


def _check_numbers(config: Config, algorithm: type[Algorithm], example: TensorDict) -> None:
    """Refuse observations of a wider type than rsl_rl's models compute in; torch would fail over them."""
    default = torch.get_default_dtype()
    own = [name for name in model_names(algorithm) if is_rsl_rls(resolve(config[name]["class_name"], name))]
    # A set that is left out is the group of its name, or else 'policy'.
    sets = [config["obs_groups"].get(name, [name if name in example.keys() else "policy"]) for name in own]
    read = [group for group in itertools.chain.from_iterable(sets) if group in example.keys()]
    wide = [group for group in read if torch.promote_types(example[group].dtype, default) != default]
    if wide:
        raise ConfigError(
            f"The observation group {wide[0]!r} holds {numbers_of(example[wide[0]])}, and rsl_rl's models "
            f"compute in {str(default).removeprefix('torch.')}. Have the environment return it as that: "
            "observations.float()."
        )


def _check_minibatches(config: Config, algorithm: type[Algorithm], num_envs: int) -> None:
    declared = inspect.signature(algorithm).parameters.get("num_mini_batches")
    if declared is None:
        return
    wanted = config["algorithm"].get("num_mini_batches", declared.default)
    recurrent = any(_is_recurrent(config[name], name) for name in model_names(algorithm))
    most = num_envs if recurrent else num_envs * config["num_steps_per_env"]
    if 1 <= wanted <= most:
        return
    unit = "environments" if recurrent else "samples of an update"
    raise ConfigError(f"num_mini_batches must lie in 1 to {most}, the number of {unit}, got {wanted}.")


def _is_recurrent(config: Mapping[str, Any], where: str) -> bool:
    return bool(getattr(resolve(config["class_name"], where), "is_recurrent", False))


def _face(config: Config, env: CheckedMeta) -> SimpleNamespace:
    """Return what `construct_algorithm` reads of an environment."""
    needs_period = config["algorithm"].get("rnd_cfg") is not None
    if needs_period and env.meta.step_dt is None:
        raise ConfigError(
            "Random network distillation (rnd_cfg) scales its reward by the control period, which the "
            "environment does not give. Say it: RSLRLVecEnvMeta(..., step_dt=0.02), in seconds."
        )
    return SimpleNamespace(
        num_envs=env.num_envs,
        num_actions=env.num_actions,
        unwrapped=SimpleNamespace(step_dt=env.meta.step_dt),
    )
