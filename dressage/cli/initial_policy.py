"""Owns how training starts from a policy that was shipped."""

from pathlib import Path
from typing import Any

from dressage.cli.algorithm import Algorithm
from dressage.errors import ConfigError
from dressage.export import load_policy
from dressage.learning.policy_files import FILE, check_seal, write_whole
from dressage.reporting.run_folder import RunFolder, RunRecord

KEPT = "kept"
RESET = "reset"


def policy_for(algorithm: Algorithm[Any], path: Path) -> Any:  # noqa: ANN401 (the algorithm's own kind)
    """Load a policy that an algorithm may go on training.

    Raises:
        CheckpointError: If the file is damaged, or no policy that loads back.
        ConfigError: If the file does not exist or another algorithm's policy is in it.
    """
    path = _file_at(path)
    if not path.is_file():
        raise ConfigError(f"--init-from: there is no policy at {path}.")
    policy = load_policy(path)
    if not algorithm.deployables(policy):
        raise ConfigError(f"--init-from: {algorithm.title} does not train what {path} holds.")
    return policy


def options_of(algorithm: Algorithm[Any], path: Path) -> dict[str, Any]:
    """Return the options that a policy fixes for whoever goes on training it.

    Raises:
        DressageError: As `policy_for`; or if the algorithm cannot start from a policy.
    """
    return algorithm.options_of(policy_for(algorithm, path))


def described_start(path: Path | None, *, keep_statistics: bool) -> dict[str, str]:
    """Return what a run's record says of its start."""
    if path is None:
        return {}
    return {"path": str(_file_at(path)), "statistics": KEPT if keep_statistics else RESET}


def keep_copy(folder: RunFolder, record: RunRecord) -> None:
    """Copy the policy that a run starts from into its directory, so that the run needs nothing else.

    Raises:
        CheckpointError: If the file has been damaged since it was read.
    """
    if not record.initial_policy:
        return
    path = Path(record.initial_policy["path"])
    content = path.read_bytes()
    check_seal(content, str(path))
    write_whole(folder.initial_policy, content)


def _file_at(path: Path) -> Path:
    return path / FILE if path.is_dir() else path
