"""Owns the check of rsl_rl's training configuration, all of it that needs no environment.

rsl_rl takes most mistakes silently or fails over them deep inside; here every entry is checked before
anything is built. What a user's own classes take is theirs: of those the names in the signature are checked.
"""

import copy
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import rsl_rl.algorithms
import rsl_rl.models
import rsl_rl.modules
from rsl_rl.extensions import RandomNetworkDistillation, Symmetry
from rsl_rl.modules import CNN
from rsl_rl.utils import resolve_callable

from dressage.config import Option, check_names, suggest, whole_number
from dressage.errors import ConfigError
from dressage.policy.rsl_rl_policy.option_ranges import (
    CARRIED,
    CASELESS,
    OBSERVATION_SETS,
    PER_LAYER,
    RANGES,
    RUNNER,
    WEIGHT_SCHEDULES,
)

Algorithm = Any
"""An rsl_rl `PPO` or `Distillation`; the package ships no types."""

Config = dict[str, Any]

ALGORITHMS = tuple(rsl_rl.algorithms.__all__)
MODELS = {"PPO": ("actor", "critic"), "Distillation": ("student", "teacher")}
SHORT_NAMES = (*ALGORITHMS, *rsl_rl.models.__all__, *rsl_rl.modules.__all__)
"""Names that need no module before them."""

WHERE = "rsl_rl's training configuration"
NEEDED = ("num_steps_per_env", "obs_groups")

FILLED_IN = {
    "algorithm": ("actor", "critic", "student", "teacher", "storage", "device", "multi_gpu_cfg"),
    "model": ("obs", "obs_groups", "obs_set", "output_dim", "cnns"),
    "distribution_cfg": ("output_dim",),
    "cnn_cfg": ("input_dim", "input_channels"),
    "rnd_cfg": ("num_states", "obs_groups", "device"),
    "symmetry_cfg": ("env",),
}
"""Arguments that rsl_rl gives itself; a configuration has no say in them."""


def check_configuration(config: Mapping[str, Any]) -> Config:
    """Check a training configuration as rsl_rl's runner takes it.

    Args:
        config: The configuration; left unchanged.

    Returns:
        A copy whose numbers have the types that their names ask for.

    Raises:
        ConfigError: If an entry is missing, unknown, of the wrong type or out of its range, or two entries
            contradict each other; the text names it, what is allowed, and the nearest name.
    """
    algorithm = algorithm_class(config)
    own, models = copy.deepcopy(dict(config)), model_names(algorithm)
    if "policy" in own and models[0] not in own:
        raise ConfigError(
            "The configuration has 'policy', which rsl_rl took up to its fourth release. Since the fifth it "
            f"takes {models[0]!r} and {models[1]!r}, each with a class_name; see rsl_rl's documentation on "
            "migration."
        )
    _require(own, (*NEEDED, *models), WHERE)
    if is_rsl_rls(algorithm):
        known = [
            *NEEDED,
            "algorithm",
            *sum(MODELS.values(), ()),
            *(option.name for option in RUNNER),
            *CARRIED,
        ]
        check_names(map(str, own), known, WHERE)
    own |= _in_range(own, RUNNER, WHERE)
    own["num_steps_per_env"] = _steps(own["num_steps_per_env"])
    classes = {name: resolve(class_name(own[name], name), name) for name in models}
    strict = all(is_rsl_rls(found) for found in (algorithm, *classes.values()))
    own["obs_groups"] = _observation_sets(own["obs_groups"], strict=strict)
    own["algorithm"] = _algorithm(own["algorithm"], algorithm)
    for name, found in classes.items():
        own[name] = _model(own[name], found, name)
    _check_together(own, algorithm, classes)
    return own


def algorithm_class(config: Mapping[str, Any]) -> type[Algorithm]:
    """Find the class that a configuration names.

    Args:
        config: rsl_rl's training configuration.

    Raises:
        ConfigError: If it names none, or one that rsl_rl lacks.
    """
    if not isinstance(config, Mapping):
        raise ConfigError(f"{WHERE} must be a mapping from names to values, got {config!r}.")
    _require(config, ("algorithm",), WHERE)
    named = class_name(config["algorithm"], "algorithm")
    if isinstance(named, str) and "." not in named and ":" not in named and named not in ALGORITHMS:
        known = " and ".join(ALGORITHMS)
        raise ConfigError(f"rsl_rl has no algorithm {named!r}. It has {known}.{near(named, ALGORITHMS)}")
    found = resolve(named, "algorithm")
    if not (isinstance(found, type) and issubclass(found, tuple(_bases().values()))):
        raise ConfigError(
            f"The algorithm {named!r} is neither {' nor '.join(ALGORITHMS)}, nor derived from one."
        )
    return found


def model_names(algorithm: type[Algorithm]) -> tuple[str, str]:
    """Return the names of an algorithm's two models: what acts, and what it is judged or taught by."""
    kind = next(name for name, base in _bases().items() if issubclass(algorithm, base))
    return MODELS[kind]


def class_name(config: Any, where: str) -> Any:  # noqa: ANN401 (a name or a class)
    """Return the class that a part of the configuration names."""
    if not isinstance(config, Mapping) or "class_name" not in config:
        raise ConfigError(f"{where!r} must be a mapping with a class_name, got {config!r}.")
    return config["class_name"]


def resolve(named: Any, where: str) -> Callable[..., Any]:  # noqa: ANN401
    """Return what a name of rsl_rl's, or `module:name`, stands for."""
    try:
        found: Callable[..., Any] = resolve_callable(named)
    except (AttributeError, ImportError, TypeError, ValueError) as error:
        nearest = near(named, SHORT_NAMES) if isinstance(named, str) else ""
        raise ConfigError(f"The class_name of {where!r} leads nowhere: {error}{nearest}") from error
    return found


def _check_function(named: Any, where: str) -> None:  # noqa: ANN401 (a function, or where it is)
    try:
        found = resolve_callable(named)
    except (AttributeError, ImportError, TypeError, ValueError) as error:
        raise ConfigError(
            f"{where} must be a function, or its name as 'package.module:function', got {named!r}: {error}"
        ) from error
    if not callable(found):
        raise ConfigError(f"{where} must be a function, and {named!r} is a {type(found).__name__}.")


def near(name: str, known: Sequence[str]) -> str:
    """Return ` Did you mean 'x'?`, or nothing where no name is near."""
    text = suggest(name, known)
    return text if text.startswith(" Did") else ""


def _steps(value: Any) -> int:  # noqa: ANN401 (whatever was written)
    steps = whole_number(value)
    if steps is None or steps < 1:
        raise ConfigError(f"num_steps_per_env must be a whole number of steps, at least 1, got {value!r}.")
    return steps


def _observation_sets(sets: Any, *, strict: bool) -> Config:  # noqa: ANN401
    if not isinstance(sets, Mapping):
        raise ConfigError(
            f"obs_groups must be a mapping from {', '.join(OBSERVATION_SETS)} to lists of observation "
            f"groups, got {sets!r}."
        )
    if strict:
        unknown = [str(name) for name in sets if name not in OBSERVATION_SETS]
        renamed = " What was 'policy' is 'actor' since rsl_rl's fifth release." if "policy" in unknown else ""
        if unknown:
            known = ", ".join(OBSERVATION_SETS)
            nearest = near(unknown[0], OBSERVATION_SETS) or renamed
            raise ConfigError(f"obs_groups has no set {unknown[0]!r}; rsl_rl's are {known}.{nearest}")
    for name, groups in sets.items():
        listed = isinstance(groups, list | tuple) and all(isinstance(one, str) for one in groups)
        if not listed or not groups:
            raise ConfigError(
                f"obs_groups[{name!r}] must be a list of observation groups and not empty, got {groups!r}."
            )
    return {name: list(groups) for name, groups in sets.items()}


def _algorithm(given: Config, algorithm: type[Algorithm]) -> Config:
    own = _section(given, algorithm, "algorithm", FILLED_IN["algorithm"])
    if own.get("rnd_cfg") is not None:
        where = "algorithm.rnd_cfg"
        # rsl_rl scales the weight before it looks for a default.
        _require(own["rnd_cfg"], ("weight",), where)
        own["rnd_cfg"] = _section(own["rnd_cfg"], RandomNetworkDistillation, where, FILLED_IN["rnd_cfg"])
        _check_schedule(own["rnd_cfg"].get("weight_schedule"), f"{where}.weight_schedule")
    if own.get("symmetry_cfg") is not None:
        where = "algorithm.symmetry_cfg"
        own["symmetry_cfg"] = _section(own["symmetry_cfg"], Symmetry, where, FILLED_IN["symmetry_cfg"])
        _check_function(own["symmetry_cfg"]["data_augmentation_func"], f"{where}.data_augmentation_func")
    return own


def _model(given: Config, found: Callable[..., Any], name: str) -> Config:
    own = _section(_without_unused(given), found, name, FILLED_IN["model"])
    if own.get("distribution_cfg") is not None:
        where = f"{name}.distribution_cfg"
        kind = resolve(class_name(own["distribution_cfg"], where), where)
        own["distribution_cfg"] = _section(
            own["distribution_cfg"], kind, where, FILLED_IN["distribution_cfg"]
        )
    cnns = own.get("cnn_cfg")
    if cnns and is_rsl_rls(found):
        where, taken = f"{name}.cnn_cfg", FILLED_IN["cnn_cfg"]
        if all(isinstance(one, Mapping) for one in cnns.values()):
            own["cnn_cfg"] = {
                group: _section(one, CNN, f"{where}.{group}", taken) for group, one in cnns.items()
            }
        else:
            own["cnn_cfg"] = _section(cnns, CNN, where, taken)
    return own


def _without_unused(given: Config) -> Config:
    """Leave out what a model without convolutions or memory has no use for, as mjlab's runner does.

    Its dictionaries hold the entries of all models.
    """
    unused = [] if given.get("cnn_cfg", True) else ["cnn_cfg"]
    unused += [] if given.get("rnn_type", True) else ["rnn_type", "rnn_hidden_dim", "rnn_num_layers"]
    return {name: value for name, value in given.items() if name not in unused}


def _section(given: Mapping[str, Any], owner: Callable[..., Any], where: str, own: Sequence[str]) -> Config:
    """Check the entries that a class takes as arguments, and return them in the types it asks for."""
    title = f"rsl_rl's {getattr(owner, '__name__', owner)} ({where})"
    parameters = {
        name: parameter
        for name, parameter in inspect.signature(owner).parameters.items()
        if name not in own and name != "self"
    }
    open_ended = [
        name for name, one in parameters.items() if one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
    ]
    known = [name for name in parameters if name not in open_ended]
    if owner is rsl_rl.algorithms.Distillation:
        # It takes and forgets the entries of PPO, so that both can share a file.
        known += [option.name for option in RANGES["PPO"]]
        open_ended = []
    if not open_ended:
        extra = ("share_cnn_encoders",) if where == "algorithm" else ()
        check_names(map(str, given), ["class_name", *known, *extra], title)
    empty = inspect.Parameter.empty
    needed = [name for name in known if name in parameters and parameters[name].default is empty]
    _require(given, needed, title)
    return {**given, **_in_range(given, list(_declared(owner)), title)}


def _declared(owner: Callable[..., Any]) -> Iterator[Option]:
    """Yield the options of a class and of its bases in rsl_rl; none of what is no class."""
    for base in reversed(getattr(owner, "__mro__", ())):
        if is_rsl_rls(base):
            yield from RANGES.get(base.__name__, ())


def _in_range(given: Mapping[str, Any], options: Sequence[Option], title: str) -> Config:
    return {
        option.name: _checked(given[option.name], option, title) for option in options if option.name in given
    }


def _checked(value: Any, option: Option, title: str) -> Any:  # noqa: ANN401
    if option.name in PER_LAYER and isinstance(value, list | tuple):
        return [option.check(item, title) for item in value]
    folded = value.lower() if option.name in CASELESS and isinstance(value, str) else value
    found = option.check(folded, title)
    if option.kind == "integers" and not found:
        raise ConfigError(f"{title} option {option.name!r} must hold at least one number, got {value!r}.")
    if option.kind == "numbers" and (len(found) != 2 or not found[0] < found[1]):
        raise ConfigError(
            f"{title} option {option.name!r} must be two numbers, the lower one first, got {value!r}."
        )
    return found


def _check_schedule(schedule: Mapping[str, Any] | None, where: str) -> None:
    if schedule is None:
        return
    modes = tuple(WEIGHT_SCHEDULES)
    _require(schedule, ("mode",), where)
    mode = Option("mode", modes[0], "choice", choices=modes).check(schedule["mode"], where)
    needed = WEIGHT_SCHEDULES[mode]
    _require(schedule, [option.name for option in needed], f"{where} of mode {mode!r}")
    _in_range(schedule, needed, where)


def _check_together(
    config: Config, algorithm: type[Algorithm], classes: Mapping[str, Callable[..., Any]]
) -> None:
    """Refuse entries that contradict each other."""
    learning = config["algorithm"]
    if model_names(algorithm) != MODELS["PPO"]:
        return
    if learning.get("schedule", "adaptive") == "adaptive" and learning.get("desired_kl", math.inf) is None:
        raise ConfigError(
            "rsl_rl's PPO (algorithm) option 'desired_kl' must be a number > 0, in nats, where the schedule "
            "is 'adaptive', got None: rsl_rl would leave the learning rate as it is. For that say "
            "schedule: fixed."
        )
    actor = classes["actor"]
    if is_rsl_rls(actor) and config["actor"].get("distribution_cfg") is None:
        raise ConfigError(
            "'actor' has no distribution_cfg, and PPO learns from sampled actions. For example: "
            "distribution_cfg: {class_name: GaussianDistribution, init_std: 1.0}"
        )
    recurrent = [name for name, found in classes.items() if getattr(found, "is_recurrent", False)]
    if learning.get("symmetry_cfg") and recurrent:
        raise ConfigError(
            f"rsl_rl augments no recurrent models by symmetry, and {recurrent[0]!r} is one: leave out "
            "symmetry_cfg, or choose another class_name."
        )


def _require(config: Any, names: Sequence[str], where: str) -> None:  # noqa: ANN401
    if not isinstance(config, Mapping):
        raise ConfigError(f"{where} must be a mapping from names to values, got {config!r}.")
    missing = [name for name in names if name not in config]
    if missing:
        has = ", ".join(map(repr, config)) or "nothing"
        raise ConfigError(f"{where} lacks {', '.join(map(repr, missing))}. It has: {has}.")


def is_rsl_rls(owner: object) -> bool:
    """Whether a class is one of rsl_rl's own."""
    return getattr(owner, "__module__", "").partition(".")[0] == "rsl_rl"


def _bases() -> dict[str, type[Algorithm]]:
    return {name: getattr(rsl_rl.algorithms, name) for name in MODELS}
