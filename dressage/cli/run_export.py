"""Owns the export of what a run trained: files for robots, beside the policy that training saved."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from dressage.cli.algorithm import Algorithm, PolicyT
from dressage.cli.known_algorithms import algorithm_named
from dressage.cli.measure import load_policy
from dressage.cli.run_cards import cards_of, judged_cards, one_of
from dressage.cli.run_setup import Plan
from dressage.cli.task_names import open_task
from dressage.cli.training_loop import Outcome
from dressage.errors import ConfigError, DressageError, install_command
from dressage.export import FORMATS, Card, export_policies, export_policy
from dressage.learning.policy_graph import Deployable
from dressage.reporting.limit_reports import read_limits
from dressage.reporting.run_folder import RunFolder, RunRecord, read_summary
from dressage.rl.safety import SafetyReport

SAFETENSORS = "safetensors"
ONNX = "onnx"


def export_run(folder: RunFolder, plan: Plan, outcome: Outcome, limits: Mapping[int, SafetyReport]) -> str:
    """Export the policies of every seed at the end of training.

    Args:
        folder: The run directory, whose metrics are complete.
        plan: What was trained.
        outcome: How the session ended.
        limits: The limit reports by seed; empty for a run without a limit.

    Returns:
        What was written, or why something was not; a refusal loses nothing, since the policies are saved.
    """
    formats = [SAFETENSORS] + ([ONNX] if find_spec("onnx") and find_spec("onnxruntime") else [])
    try:
        for index in range(len(plan.record.seeds)):
            _export_seed(folder, plan, outcome, index, formats, limits)
    except DressageError as error:
        return f"none: {error}"
    if ONNX not in formats:
        return f"safetensors; for ONNX: {install_command('onnx')}, then: dressage export RUN"
    return "safetensors and ONNX, both checked against the policy"


def export_from_run(
    run: Path,
    output: Path | None,
    file_format: str | None,
    trained_seed: int | None,
    *,
    critic: bool = False,
) -> list[Path]:
    """Export the policies of a run again.

    Args:
        run: The run directory.
        output: The file; for a task of several agents the folder. None puts it beside the policy.
        file_format: The format; None reads it off the file's ending, or takes ONNX.
        trained_seed: Whose policies, where several seeds were trained; None for the first.
        critic: Whether the files, which are safetensors then, hold the critic too; those beside the policy
            always do.

    Returns:
        The files.

    Raises:
        DressageError: If there is no run, no policy or no such seed, or the export is refused.
    """
    if critic and (file_format or (output.suffix[1:] if output else ONNX)) != SAFETENSORS:
        raise ConfigError(
            "--critic: only safetensors files hold a critic. Give --format safetensors, or an --output that "
            "ends in .safetensors."
        )
    folder = RunFolder(run)
    record = RunRecord.read(folder)
    seed = record.seeds[0] if trained_seed is None else trained_seed
    if seed not in record.seeds:
        raise ConfigError(f"{run} has no seed {seed}. It has: {', '.join(map(str, record.seeds))}.")
    algorithm = algorithm_named(record.algorithm)
    policy = load_policy(algorithm, folder, record, seed)
    summary, index = read_summary(folder), record.seeds.index(seed)
    steps, limits = summary.get("steps_taken"), read_limits(summary).get(seed)
    policies, cards = _with_cards(algorithm, folder, record, index, policy, steps, limits)
    place = folder.policy_of(seed, record.seeds)
    if len(policies) > 1 or output is None:
        chosen = file_format or ONNX
        _refuse_file(run, output, len(policies))
        kept = critic or (output is None and chosen == SAFETENSORS)
        return _write(policies, cards, output or place, chosen, critic=kept)
    agent, alone = one_of(policies)
    return [export_policy(alone, output, format=file_format, card=cards[agent], critic=critic)]


def _export_seed(
    folder: RunFolder,
    plan: Plan,
    outcome: Outcome,
    index: int,
    formats: Sequence[str],
    limits: Mapping[int, SafetyReport],
) -> None:
    record, policy = plan.record, plan.trainer.policy(outcome.state, index)
    steps, judged = plan.trainer.steps_done(outcome.state), limits.get(record.seeds[index])
    policies, cards = _with_cards(plan.algorithm, folder, record, index, policy, steps, judged)
    for chosen in formats:
        # What the run's own policy folder holds is what training goes on from, so it keeps the critic.
        place = folder.policy_of(record.seeds[index], record.seeds)
        _write(policies, cards, place, chosen, critic=chosen == SAFETENSORS)


def _with_cards(
    algorithm: Algorithm[PolicyT],
    folder: RunFolder,
    record: RunRecord,
    index: int,
    policy: PolicyT,
    steps: int | None,
    limits: SafetyReport | None,
) -> tuple[Mapping[str, Deployable], dict[str, Card]]:
    """Return the policies of one seed of a run by agent, and their cards."""
    policies = _deployables(algorithm, policy)
    named = algorithm.signals(open_task(record.task), policy)
    cards = cards_of(folder, record, index, list(policies), steps, named)
    return policies, judged_cards(cards, limits)


def _refuse_file(run: Path, output: Path | None, agents: int) -> None:
    """Refuse an output that names one file for the policies of several agents."""
    if output is not None and output.suffix.removeprefix(".") in FORMATS:
        raise ConfigError(
            f"{run} has {agents} agents, and --output names the folder for their files, not a file: "
            f"--output {output.with_suffix('')} --format {output.suffix.removeprefix('.')}"
        )


def _deployables(algorithm: Algorithm[PolicyT], policy: PolicyT) -> Mapping[str, Deployable]:
    policies = algorithm.deployables(policy)
    if not policies:
        raise ConfigError(f"Policies of {algorithm.title} cannot be exported.")
    return policies


def _write(
    policies: Mapping[str, Deployable],
    cards: Mapping[str, Card],
    place: Path,
    file_format: str,
    *,
    critic: bool,
) -> list[Path]:
    """Write one agent's policy as `policy.FORMAT`, or those of several into a folder named by the format."""
    if len(policies) > 1:
        paths = export_policies(policies, place / file_format, format=file_format, cards=cards, critic=critic)
        return list(paths.values())
    agent, policy = one_of(policies)
    path = place / f"policy.{file_format}"
    return [export_policy(policy, path, format=file_format, card=cards[agent], critic=critic)]
