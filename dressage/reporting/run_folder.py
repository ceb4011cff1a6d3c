"""Owns the layout of a run directory and the record of how the run was started."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dressage.errors import CheckpointError, ConfigError
from dressage.whole_files import whole_file

RECORDED = {
    "task": str,
    "algorithm": str,
    "options": dict,
    "changed": dict,
    "seeds": list,
    "created": str,
    "versions": dict,
    "machine": dict,
    "preset": dict,
    "initial_policy": dict,
    "filmed": bool,
}
"""What `config.json` holds."""

OPTIONAL = {"versions", "machine", "preset", "initial_policy", "filmed", "limits"}
"""Entries of `config.json` and `summary.json` that may be missing."""

FINISHED = "finished"
INTERRUPTED = "interrupted"
"""What `status` in `summary.json` can be."""

SUMMARIZED = {
    "status": str,
    "steps_requested": int,
    "steps_taken": int,
    "updates": int,
    "time_s": int | float,
    "start_up_s": int | float,
    "steps_per_second": int | float | None,
    "exact_resume": bool,
    "film": dict,
    "limits": list,
}
"""What `summary.json` holds and the report reads."""


@dataclass(frozen=True)
class RunFolder:
    """The files of one run.

    Attributes:
        path: The run directory.
    """

    path: Path

    @property
    def config(self) -> Path:
        """How the run was started: task, options, seeds, versions."""
        return self.path / "config.json"

    @property
    def metrics(self) -> Path:
        """One JSON object a line; see `metric_rows`."""
        return self.path / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        """Training states, the newest few."""
        return self.path / "checkpoints"

    @property
    def policy(self) -> Path:
        """The trained policy, or one folder a seed where several were trained."""
        return self.path / "policy"

    @property
    def initial_policy(self) -> Path:
        """A copy of the policy that training started from, where it did not start from scratch."""
        return self.path / "initial_policy.safetensors"

    @property
    def initial_policies(self) -> Path:
        """The same of several agents: a folder of files with their manifest."""
        return self.path / "initial_policies"

    @property
    def curve(self) -> Path:
        """The learning curve."""
        return self.path / "learning_curve.png"

    @property
    def limits(self) -> Path:
        """What training under a cost limit went through; only where there is one."""
        return self.path / "limits.png"

    @property
    def film(self) -> Path:
        """A film of the trained policy."""
        return self.path / "rollout.gif"

    @property
    def report(self) -> Path:
        """The self-contained report."""
        return self.path / "report.html"

    @property
    def summary(self) -> Path:
        """What came out, for programs to read."""
        return self.path / "summary.json"

    @property
    def tensorboard(self) -> Path:
        """Event files for TensorBoard, where they were asked for."""
        return self.path / "tensorboard"

    def policy_of(self, seed: int, seeds: tuple[int, ...]) -> Path:
        """The folder of one seed's policy.

        Args:
            seed: The seed, one of `seeds`.
            seeds: All seeds of the run.
        """
        return self.policy if len(seeds) == 1 else self.policy / f"seed-{seed}"

    def holds_run(self) -> bool:
        """Whether a run was started here."""
        return self.config.is_file()


@dataclass(frozen=True)
class RunRecord:
    """How a run was started; all that resuming it needs.

    Attributes:
        task: The task's name, as `dressage.envs.make` takes it.
        algorithm: The learner's name.
        options: Every option of the learner with the value that runs.
        changed: The options that differ from their defaults.
        seeds: The seeds, trained at once.
        created: When the run was started, local time in ISO 8601.
        versions: Version by package name, with `python`.
        machine: What the run was started on: processor, cores, devices.
        preset: The options that were taken from the task's preset.
        initial_policy: `path` of the file that training started from, and its `statistics`, `kept` or
            `reset`; empty for training from scratch.
        filmed: Whether the policy is filmed when training is finished.
    """

    task: str
    algorithm: str
    options: Mapping[str, Any]
    changed: Mapping[str, Any]
    seeds: tuple[int, ...]
    created: str
    versions: Mapping[str, str] = field(default_factory=dict)
    machine: Mapping[str, str] = field(default_factory=dict)
    preset: Mapping[str, Any] = field(default_factory=dict)
    initial_policy: Mapping[str, Any] = field(default_factory=dict)
    filmed: bool = True

    def write(self, folder: RunFolder) -> None:
        """Write `config.json`."""
        write_json(folder.config, asdict(self) | {"seeds": list(self.seeds)})

    @classmethod
    def read(cls, folder: RunFolder) -> "RunRecord":
        """Read `config.json`.

        Raises:
            ConfigError: If the folder holds no run.
            CheckpointError: If `config.json` is damaged.
        """
        if not folder.holds_run():
            raise ConfigError(f"{folder.path} is not a run directory: it has no config.json.")
        content = _read_object(folder.config)
        missing = RECORDED.keys() - OPTIONAL - content.keys()
        if missing:
            lacking = ", ".join(sorted(missing))
            raise CheckpointError(f"{folder.config} lacks {lacking}; it is no record of a run.")
        _check_types(folder.config, content, RECORDED)
        if not content["seeds"] or not all(isinstance(seed, int) for seed in content["seeds"]):
            raise CheckpointError(f"{folder.config} is damaged: seeds are {content['seeds']}.")
        content["seeds"] = tuple(content["seeds"])
        return cls(**{name: value for name, value in content.items() if name in RECORDED})


def read_summary(folder: RunFolder) -> dict[str, Any]:
    """Return what `summary.json` says, or an empty dictionary for a run that never finished.

    Raises:
        CheckpointError: If the file is damaged.
    """
    if not folder.summary.is_file():
        return {}
    content = _read_object(folder.summary)
    _check_types(folder.summary, content, SUMMARIZED)
    return content


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file so that a crash leaves the old one or the new one, never half of one."""
    with whole_file(path) as draft:
        draft.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _read_object(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is damaged: {error}.") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} is damaged: it holds no JSON object.")
    return content


def _check_types(path: Path, content: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse an entry that is missing or of another type than written; `OPTIONAL` ones may be missing."""
    for name in wanted.keys() - (OPTIONAL - content.keys()):
        if not isinstance(content.get(name), wanted[name]):
            raise CheckpointError(f"{path} is damaged: {name} is {content.get(name)!r}.")
