"""Owns building an rsl_rl algorithm: its configuration checked, its models constructed quietly.

The configuration is rsl_rl's own. Construction writes into it and prints, so it gets a copy and no terminal.
"""

import contextlib
import copy
import inspect
import io
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import rsl_rl.algorithms
from rsl_rl.utils import resolve_callable
from tensordict import TensorDict

from dressage.config import check_names, suggest, whole_number
from dressage.errors import ConfigError
from dressage.policy.rsl_rl_policy.env_meta import CheckedMeta

Algorithm = Any
"""An rsl_rl `PPO` or `Distillation`; the package ships no types."""

ALGORITHMS = tuple(rsl_rl.algorithms.__all__)
MODELS = {"PPO": ("actor", "critic"), "Distillation": ("student", "teacher")}
FILLED_IN = {
    "algorithm": ("actor", "critic", "student", "teacher", "storage", "device", "multi_gpu_cfg"),
    "model": ("obs", "obs_groups", "obs_set", "output_dim", "cnns"),
}
"""Arguments that rsl_rl gives itself; a configuration has no say in them."""

Config = dict[str, Any]


def algorithm_class(config: Mapping[str, Any]) -> type[Algorithm]:
    """Find the class that a configuration names.

    Args:
        config: rsl_rl's training configuration.

    Raises:
        ConfigError: If it names none, or one that rsl_rl lacks.
    """
    _require(config, ("algorithm",))
    named = _class_name(config["algorithm"], "algorithm")
    if isinstance(named, str) and "." not in named and ":" not in named and named not in ALGORITHMS:
        known = " and ".join(ALGORITHMS)
        raise ConfigError(f"rsl_rl has no algorithm {named!r}. It has {known}.{_near(named, ALGORITHMS)}")
    found = _resolve(named, "algorithm")
    if not (isinstance(found, type) and issubclass(found, tuple(_bases().values()))):
        raise ConfigError(
            f"The algorithm {named!r} is neither {' nor '.join(ALGORITHMS)}, nor derived from one."
        )
    return found


def model_names(algorithm: type[Algorithm]) -> tuple[str, str]:
    """Return the names of an algorithm's two models: what acts, and what it is judged or taught by."""
    kind = next(name for name, base in _bases().items() if issubclass(algorithm, base))
    return MODELS[kind]


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
    own = copy.deepcopy(dict(config))
    own["multi_gpu"] = ranks
    found = algorithm_class(own)
    _check_config(own, found, env)
    example = env.example[:1].expand(env.num_envs).to(device)
    with contextlib.redirect_stdout(io.StringIO()):
        built = found.construct_algorithm(example, _face(own, env), own, device)
    if getattr(built, "symmetry", None) is not None and env.meta.env is not None:
        built.symmetry.env = env.meta.env
    return built


def _check_config(config: Config, algorithm: type[Algorithm], env: CheckedMeta) -> None:
    models = model_names(algorithm)
    if "policy" in config and models[0] not in config:
        raise ConfigError(
            "The configuration has 'policy', which rsl_rl took up to its fourth release. Since the fifth it "
            f"takes {models[0]!r} and {models[1]!r}, each with a class_name; see rsl_rl's documentation on "
            "migration."
        )
    _require(config, ("num_steps_per_env", "obs_groups", *models))
    steps = whole_number(config["num_steps_per_env"])
    if steps is None or steps < 1:
        shown = config["num_steps_per_env"]
        raise ConfigError(f"num_steps_per_env must be a whole number of steps, at least 1, got {shown!r}.")
    config["num_steps_per_env"] = steps
    _check_groups(config["obs_groups"], env.example)
    _check_arguments(config["algorithm"], algorithm, "algorithm", FILLED_IN["algorithm"])
    for name in models:
        found = _resolve(_class_name(config[name], name), name)
        _check_arguments(config[name], found, name, FILLED_IN["model"])
    _check_minibatches(config, models, env.num_envs)


def _check_groups(groups: Mapping[str, Sequence[str]], example: TensorDict) -> None:
    for name, members in groups.items():
        known = [str(group) for group in example.keys()]
        if isinstance(members, str) or len(members) == 0:
            raise ConfigError(
                f"obs_groups[{name!r}] must be a list of observation groups and not empty, got {members!r}. "
                f"The environment gives: {', '.join(known)}."
            )
        unknown = [member for member in members if member not in known]
        if unknown:
            raise ConfigError(
                f"obs_groups[{name!r}] names the observation group {unknown[0]!r}, which the environment "
                f"does not give. It gives: {', '.join(known)}.{_near(unknown[0], known)}"
            )


def _check_arguments(
    given: Mapping[str, Any], owner: Callable[..., Any], where: str, own: Sequence[str]
) -> None:
    parameters = inspect.signature(owner).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    known = [name for name in parameters if name not in own and name != "self"]
    extra = ("share_cnn_encoders",) if where == "algorithm" else ()
    check_names(given, ["class_name", *known, *extra], f"rsl_rl's {owner.__name__} ({where})")


def _check_minibatches(config: Config, models: tuple[str, str], num_envs: int) -> None:
    wanted = config["algorithm"].get("num_mini_batches")
    recurrent = any(_is_recurrent(config[name], name) for name in models)
    most = num_envs if recurrent else num_envs * config["num_steps_per_env"]
    if wanted is None or 1 <= wanted <= most:
        return
    unit = "environments" if recurrent else "samples of an update"
    raise ConfigError(f"num_mini_batches must lie in 1 to {most}, the number of {unit}, got {wanted}.")


def _is_recurrent(config: Mapping[str, Any], where: str) -> bool:
    return bool(getattr(_resolve(config["class_name"], where), "is_recurrent", False))


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


def _class_name(config: Any, where: str) -> Any:  # noqa: ANN401 (a name or a class)
    if not isinstance(config, Mapping) or "class_name" not in config:
        raise ConfigError(f"{where!r} must be a mapping with a class_name, got {config!r}.")
    return config["class_name"]


def _resolve(named: Any, where: str) -> Callable[..., Any]:  # noqa: ANN401
    try:
        found: Callable[..., Any] = resolve_callable(named)
    except (AttributeError, ImportError, TypeError, ValueError) as error:
        raise ConfigError(f"The class_name of {where!r} leads nowhere: {error}") from error
    return found


def _require(config: Mapping[str, Any], names: Sequence[str]) -> None:
    missing = [name for name in names if name not in config]
    if missing:
        raise ConfigError(
            f"rsl_rl's training configuration lacks {', '.join(map(repr, missing))}. "
            f"It has: {', '.join(map(repr, config)) or 'nothing'}."
        )


def _near(name: str, known: Sequence[str]) -> str:
    near = suggest(name, known)
    return near if near.startswith(" Did") else ""


def _bases() -> dict[str, type[Algorithm]]:
    return {name: getattr(rsl_rl.algorithms, name) for name in MODELS}
