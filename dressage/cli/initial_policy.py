"""Owns how training starts from shipped policies: one file, or one for each agent and a manifest."""

from pathlib import Path
from typing import Any

from dressage.cli.algorithm import Algorithm, FineTunable
from dressage.errors import ConfigError
from dressage.export import load_policies, load_policy
from dressage.export.loading import SAFETENSORS
from dressage.export.manifest import MANIFEST, read_manifest
from dressage.learning.policy_files import FILE, check_seal, write_whole
from dressage.learning.specs import AGENT
from dressage.reporting.run_folder import RunFolder, RunRecord

KEPT = "kept"
RESET = "reset"

PLACES = (FILE, MANIFEST, f"safetensors/{MANIFEST}", f"policy/{FILE}", f"policy/safetensors/{MANIFEST}")
"""Where policies lie in a folder: of files, of a run's policies, of a run."""


def fine_tunable(algorithm: Algorithm[Any]) -> FineTunable[Any]:
    """Return an algorithm as one that starts from policies.

    Raises:
        ConfigError: If it starts from none.
    """
    if not isinstance(algorithm, FineTunable):
        raise ConfigError(
            f"--init-from is for PPO and the learners of several agents; {algorithm.title} starts from no "
            "exported policy. To go on with a run: dressage train --run RUN --resume. To begin from a "
            "checkpoint of rsl_rl's runner, from Python: load_checkpoint(PATH) of the engine's learner."
        )
    return algorithm


def policy_for(algorithm: FineTunable[Any], path: Path) -> Any:  # noqa: ANN401 (the algorithm's own kind)
    """Load policies that an algorithm may go on training.

    Args:
        algorithm: What goes on.
        path: A safetensors file, a manifest of such files, or a folder that holds either.

    Raises:
        CheckpointError: If a file is damaged, or no policy that loads back.
        ConfigError: If there is none, or it is another algorithm's.
    """
    path = _place_of(path)
    if path.name == MANIFEST:
        _refuse_programs(path)
        return algorithm.adopt(load_policies(path.parent))
    policy = load_policy(path)
    return algorithm.adopt({getattr(policy, "agent_id", AGENT): policy})


def described_start(path: Path | None, *, keep_statistics: bool) -> dict[str, str]:
    """Return what a run's record says of its start."""
    if path is None:
        return {}
    return {"path": str(_place_of(path).absolute()), "statistics": KEPT if keep_statistics else RESET}


def keep_copy(folder: RunFolder, record: RunRecord) -> Path:
    """Copy what a run starts from into its directory, unless it is there, so that the run needs nothing else.

    Returns:
        The copy.

    Raises:
        CheckpointError: If a file has been damaged since it was read.
        ConfigError: If it has gone.
    """
    source = Path(record.initial_policy["path"])
    manifest = source.name == MANIFEST
    copy = folder.initial_policies / MANIFEST if manifest else folder.initial_policy
    if copy.is_file():
        return copy
    source = _place_of(source)
    content = source.read_bytes()
    check_seal(content, str(source))
    for path in read_manifest(source.parent).values() if manifest else ():
        write_whole(folder.initial_policies / path.name, path.read_bytes())
    write_whole(copy, content)  # The manifest comes last: where it is, all of them are.
    return copy


def _place_of(path: Path) -> Path:
    """Return the file or the manifest that a path means."""
    if path.is_file():
        return path
    if not path.is_dir():
        raise ConfigError(f"--init-from: there is no policy at {path}.")
    found = [path / place for place in PLACES if (path / place).is_file()]
    if not found:
        raise ConfigError(
            f"--init-from: there is no policy in {path}, which holds none of {', '.join(PLACES)}. "
            "Of a run over several seeds name one seed's folder."
        )
    return found[0]


def _refuse_programs(manifest: Path) -> None:
    programs = [path.name for path in read_manifest(manifest.parent).values() if path.suffix != SAFETENSORS]
    if programs:
        raise ConfigError(
            f"--init-from: {manifest} lists {', '.join(programs)}, which only run; training goes on from "
            "safetensors: dressage export RUN --format safetensors"
        )
