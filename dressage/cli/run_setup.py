"""Owns the way from what a user typed, or from a run directory, to a task, options and a trainer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from dressage import ppo
from dressage.cli.presets import preset_of
from dressage.cli.start_up import machine, versions
from dressage.cli.trainable import Trainable
from dressage.config import check_names
from dressage.envs.registry import single_agent_task
from dressage.errors import ConfigError
from dressage.reporting.metric_rows import jsonable
from dressage.reporting.run_folder import RunFolder, RunRecord

ALGORITHMS = ("ppo",)
STEPS_OPTION = "TOTAL_TIMESTEPS"


@dataclass(frozen=True)
class Request:
    """What a user asked to be trained.

    Attributes:
        task: The task's name.
        algorithm: The learner's name.
        steps: Environment steps of each seed; None leaves them to preset and default.
        first_seed: The first seed.
        seeds: How many seeds, counted up from the first.
        settings: `KEY=VALUE` texts.
        use_preset: Whether the task's preset applies.
    """

    task: str
    algorithm: str = "ppo"
    steps: int | None = None
    first_seed: int = 0
    seeds: int = 1
    settings: Sequence[str] = ()
    use_preset: bool = True


def new_record(request: Request) -> RunRecord:
    """Resolve a request into everything that a run needs; nothing is compiled and no file is written.

    Raises:
        ConfigError: If the algorithm, an option or a value is wrong.
    """
    if request.algorithm not in ALGORITHMS:
        raise ConfigError(
            f"There is no algorithm {request.algorithm!r} for single agents. Known: {', '.join(ALGORITHMS)}."
        )
    preset = preset_of(request.task) if request.use_preset else {}
    given = {**preset, **_given_options(request)}
    config = ppo.Config.from_mapping(given).validate()
    options = {option.name: jsonable(getattr(config, option.name)) for option in ppo.OPTIONS}
    defaults = {option.name: option.default for option in ppo.OPTIONS}
    return RunRecord(
        task=request.task,
        algorithm=request.algorithm,
        options=options,
        changed={name: value for name, value in options.items() if value != defaults[name]},
        seeds=tuple(range(request.first_seed, request.first_seed + request.seeds)),
        created=datetime.now().isoformat(timespec="seconds"),
        versions=versions(request.task),
        machine=machine(),
        preset=preset,
    )


def trainer_of(record: RunRecord) -> Trainable:
    """Make the trainer of a run.

    Raises:
        ConfigError: If the task does not exist or has many agents, or the options do not fit.
    """
    return ppo.make_trainer(single_agent_task(record.task), config_of(record), record.seeds)


def config_of(record: RunRecord) -> ppo.Config:
    """Return the configuration of a run.

    Raises:
        ConfigError: If an option does not exist in this version, or its value is not legal.
    """
    return ppo.Config.from_mapping(dict(record.options))


def default_folder(task: str, seed: int, root: Path = Path("runs")) -> Path:
    """Return the folder of a run that was given none: `runs/TASK-SEED`, with the time where that is taken."""
    name = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in task)
    plain = root / f"{name}-{seed}"
    return root / f"{plain.name}-{datetime.now():%Y%m%d-%H%M%S}" if plain.exists() else plain


def create_folder(path: Path, record: RunRecord) -> RunFolder:
    """Make the directory of a new run and write its `config.json`.

    Raises:
        ConfigError: If there is something at the path already.
    """
    folder = RunFolder(path)
    if folder.holds_run():
        raise ConfigError(
            f"{path} holds a run already. Go on with it by: dressage train --run {path} --resume\n"
            "Or start another one with a different --run."
        )
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ConfigError(f"{path} exists and is no empty folder. Give another one with --run.")
    path.mkdir(parents=True, exist_ok=True)
    record.write(folder)
    return folder


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
        parsed[name] = _parse_value(name, value)
    return parsed


def _given_options(request: Request) -> Mapping[str, Any]:
    given = parse_settings(request.settings)
    check_names(given, [option.name for option in ppo.OPTIONS], "PPO")
    if request.steps is None:
        return given
    if STEPS_OPTION in given:
        raise ConfigError(f"--steps and --set {STEPS_OPTION} say the same thing; give one of them.")
    return {**given, STEPS_OPTION: request.steps}


def _parse_value(name: str, text: str) -> Any:  # noqa: ANN401 (options hold values of several types)
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {name}: {text!r} is no YAML value.") from error
    return _as_number(value) if isinstance(value, str) else value


def _as_number(text: str) -> float | str:
    # YAML 1.1 takes 3e-4 for a word, since it wants a dot before the exponent.
    try:
        return float(text)
    except ValueError:
        return text
