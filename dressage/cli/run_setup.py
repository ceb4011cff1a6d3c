"""Owns the way from what a user typed, or from a run directory, to a task, options and a run."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from dressage.cli.algorithm import Algorithm, Trainable
from dressage.cli.counts import read_count
from dressage.cli.initial_policy import KEPT, described_start, fine_tunable, keep_copy, policy_for
from dressage.cli.known_algorithms import algorithm_for
from dressage.cli.nested_options import apply_settings, differences, read_config
from dressage.cli.start_up import machine, versions
from dressage.cli.task_names import AnyTask, open_task
from dressage.cli.yaml_values import read_yaml
from dressage.config import check_names
from dressage.errors import ConfigError
from dressage.reporting.run_folder import RunFolder, RunRecord
from dressage.reporting.run_lock import LOCK, locked, make_folder


@dataclass(frozen=True)
class Request:
    """What a user asked to be trained.

    Attributes:
        task: The task's name.
        algorithm: The algorithm's name; None for the task's default.
        steps: Environment steps of each seed; None leaves them to preset and default.
        first_seed: The first seed.
        seeds: How many seeds, counted up from the first.
        settings: `KEY=VALUE` texts.
        use_preset: Whether the task's preset applies.
        initial_policy: File, manifest or folder of the policies that training starts from; None for none.
        keep_statistics: Whether that policy's observation statistics are taken over.
        config: A YAML file of options, or of what the algorithm's `config_option` takes; None for none.
        workers: Workers that environments are dealt out to; None leaves them to preset and default.
        cluster: The Ray cluster that workers run on; None for none.
        film: Whether the policy is filmed at the end.
    """

    task: str
    algorithm: str | None = None
    steps: int | None = None
    first_seed: int = 0
    seeds: int = 1
    settings: Sequence[str] = ()
    use_preset: bool = True
    initial_policy: Path | None = None
    keep_statistics: bool = True
    config: Path | None = None
    workers: int | None = None
    cluster: str | None = None
    film: bool = True


@dataclass(frozen=True)
class Plan:
    """A run put together, before anything is compiled.

    Attributes:
        record: How it is started; all that resuming it needs.
        algorithm: What trains.
        trainer: The run itself.
    """

    record: RunRecord
    algorithm: Algorithm[Any]
    trainer: Trainable[Any]


def plan_run(request: Request) -> Plan:
    """Resolve a request into a run; nothing is compiled and no file is written.

    Raises:
        DressageError: If the task, the algorithm, an option or a value is wrong, or they do not fit together.
    """
    task = open_task(request.task)
    algorithm = algorithm_for(request.task, task, request.algorithm)
    if request.initial_policy is None:
        return _plan(new_record(request, algorithm), algorithm, task)
    learner = fine_tunable(algorithm)
    policy = policy_for(learner, request.initial_policy)
    plan = _plan(new_record(request, learner, learner.options_of(policy)), learner, task)
    learner.check_start(plan.trainer, policy)
    return plan


def plan_again(record: RunRecord) -> Plan:
    """Put a run together as its record says.

    Raises:
        DressageError: If task or algorithm do not exist here, or an option is not legal in this version.
    """
    task = open_task(record.task)
    return _plan(record, algorithm_for(record.task, task, record.algorithm), task)


def new_record(
    request: Request, algorithm: Algorithm[Any], shipped: Mapping[str, Any] | None = None
) -> RunRecord:
    """Resolve a request into everything that its run must remember.

    Args:
        request: What was asked for.
        algorithm: What trains.
        shipped: Options that the policy fixes which training starts from.

    Raises:
        ConfigError: If an option or a value is wrong.
    """
    preset = dict(algorithm.presets.get(request.task, {})) if request.use_preset else {}
    base = {**preset, **(shipped or {}), **read_config(request.config, algorithm)}
    options = algorithm.resolve(apply_settings(algorithm, base, _given_options(request, algorithm)))
    defaults = {option.name: option.default for option in algorithm.options}
    return RunRecord(
        task=request.task,
        algorithm=algorithm.name,
        options=options,
        changed=algorithm.told_changes(differences(options, defaults), options),
        seeds=tuple(range(request.first_seed, request.first_seed + request.seeds)),
        created=datetime.now().isoformat(timespec="seconds"),
        versions=versions(request.task),
        machine=machine(),
        preset=preset,
        initial_policy=described_start(request.initial_policy, keep_statistics=request.keep_statistics),
        filmed=request.film,
    )


def fresh_state(folder: RunFolder, plan: Plan) -> Any:  # noqa: ANN401 (the run's own state)
    """Return the state before the first update, with the policy in it that the run starts from.

    Raises:
        DressageError: If there is such a policy, and it is damaged or does not fit.
    """
    state, started = plan.trainer.init(), plan.record.initial_policy
    if not started:
        return state
    learner = fine_tunable(plan.algorithm)
    policy = policy_for(learner, keep_copy(folder, plan.record))
    keep = started["statistics"] == KEPT
    return learner.start_from(plan.trainer, state, policy, keep_statistics=keep)


def default_folder(task: str, seed: int, root: Path = Path("runs")) -> Path:
    """Return the folder of a run that was given none: `runs/TASK-SEED`, with the time where that is taken."""
    name = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in task)
    plain = root / f"{name}-{seed}"
    return root / f"{plain.name}-{datetime.now():%Y%m%d-%H%M%S}" if plain.exists() else plain


@contextmanager
def new_folder(path: Path, record: RunRecord) -> Iterator[RunFolder]:
    """Make the directory of a new run, write its `config.json` and hold its lock.

    Raises:
        ConfigError: If there is something at the path already, or the directory cannot be made.
    """
    folder = RunFolder(path)
    _refuse_taken(folder)
    make_folder(path)
    with locked(path):
        _refuse_taken(folder)  # Another process may have been faster.
        record.write(folder)
        yield folder


def parse_settings(settings: Sequence[str]) -> dict[str, Any]:
    """Read `KEY=VALUE` texts; the values are YAML.

    Raises:
        ConfigError: If a text has no `=`, a value is no YAML, or a key comes twice.
    """
    parsed: dict[str, Any] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise ConfigError(f"--set takes KEY=VALUE, for example --set LR=3e-4; got {text!r}.")
        if name in parsed:
            raise ConfigError(f"--set gives {name} twice.")
        if not value.strip():
            raise ConfigError(f"--set {name}= gives no value; write it behind the equals sign.")
        parsed[name] = _parse_value(name, value)
    return parsed


def _refuse_taken(folder: RunFolder) -> None:
    path = folder.path
    if folder.holds_run():
        raise ConfigError(
            f"{path} holds a run already. Go on with it by: dressage train --run {path} --resume\n"
            "Or start another one with a different --run."
        )
    if path.exists() and (not path.is_dir() or any(entry.name != LOCK for entry in path.iterdir())):
        raise ConfigError(f"{path} exists and is no empty folder. Give another one with --run.")


def _plan(record: RunRecord, algorithm: Algorithm[Any], task: AnyTask) -> Plan:
    return Plan(record, algorithm, algorithm.make_run(task, record.options, record.seeds))


def _given_options(request: Request, algorithm: Algorithm[Any]) -> Mapping[str, Any]:
    given = parse_settings(request.settings)
    mappings = {option.name for option in algorithm.options if option.kind == "mapping"}
    plain = [name for name in given if name.partition(".")[0] not in mappings]
    check_names(plain, [option.name for option in algorithm.options], algorithm.title)
    given |= _layout(request, algorithm)
    counts = {option.name for option in algorithm.options if option.kind == "integer"}
    given = {name: _as_count(value) if name in counts else value for name, value in given.items()}
    if request.steps is None:
        return given
    if algorithm.steps_option in given:
        raise ConfigError(f"--steps and --set {algorithm.steps_option} say the same thing; give one of them.")
    return {**given, algorithm.steps_option: request.steps}


def _layout(request: Request, algorithm: Algorithm[Any]) -> dict[str, Any]:
    """Return what `--workers` and `--cluster` say, as options."""
    asked = {"workers": request.workers, "address": request.cluster}
    given = {name: value for name, value in asked.items() if value is not None}
    known = {option.name for option in algorithm.options}
    for name, flag in (("workers", "--workers"), ("address", "--cluster")):
        if name in given and name not in known:
            raise ConfigError(
                f"{flag} is for algorithms whose environments are stepped by workers, such as rsl_rl's; "
                f"{algorithm.title} has none."
            )
    return given


def _parse_value(name: str, text: str) -> Any:  # noqa: ANN401 (options hold values of several types)
    try:
        return read_yaml(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {name}: {text!r} is no YAML value.") from error


def _as_count(value: Any) -> Any:  # noqa: ANN401 (whatever was typed, for the option to judge)
    """Read `1M` as a count; what is none stays as it is."""
    number = read_count(value) if isinstance(value, str) else None
    return value if number is None else number
