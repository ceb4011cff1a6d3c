"""Owns what a session leaves behind: policies, curve, film, summary, report, and a table that names them."""

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dressage.cli.run_export import export_run
from dressage.cli.run_setup import Plan
from dressage.cli.task_names import open_task
from dressage.cli.training_loop import Outcome
from dressage.config import Option
from dressage.envs.cmdp import Finite, solve_cmdp
from dressage.errors import ConfigError
from dressage.reporting.film import write_film
from dressage.reporting.filming import FILMED_OF
from dressage.reporting.limit_plots import Optimum, write_limit_figure
from dressage.reporting.limit_reports import describe_limits, limit_lines, read_limits
from dressage.reporting.metric_rows import jsonable, read_rows
from dressage.reporting.plots import agent_curves, learning_curve, write_learning_curves
from dressage.reporting.report import Findings, describe_workers, gather, write_report
from dressage.reporting.run_folder import FINISHED, INTERRUPTED, RunFolder, RunRecord, write_json
from dressage.reporting.seed_statistics import ReturnSummary
from dressage.reporting.wording import (
    MOST_LIKELY,
    describe_count,
    describe_duration,
    describe_number,
    describe_rate,
    describe_unfinished,
)
from dressage.rl.safety import SafetyReport

FILM_SEED = 0
TITLE_WIDTH = 120
"""Characters of a figure's title in a line."""

LIMIT_SEED = 0
"""That of `dressage evaluate` by default, whose verdict on as many episodes is the same."""


def finish_run(folder: RunFolder, plan: Plan, outcome: Outcome, *, film: bool) -> None:
    """Write the policies, the learning curve, the film, the summary and the report.

    Args:
        folder: The run directory.
        plan: What was trained.
        outcome: How the session ended.
        film: Whether to film the policy.
    """
    seeds = plan.record.seeds
    for index, seed in enumerate(seeds):
        plan.trainer.policy(outcome.state, index).save(folder.policy_of(seed, seeds))
    limits = _judge(plan, outcome) if outcome.finished else {}
    exported = "Policies are exported at the end."
    if outcome.finished:
        exported = export_run(folder, plan, outcome, limits)
    draw_curves(folder, plan.record)
    note = _film(folder, plan, outcome) if film else "No film was asked for."
    if not outcome.finished:
        note = "The film is made when training is finished."
    found = {"export": exported, "limits": describe_limits(limits)}
    write_json(folder.summary, jsonable(_summary(folder, plan, outcome, note) | found))
    write_report(folder, plan.algorithm.options)


def draw_curves(folder: RunFolder, record: RunRecord) -> None:
    """Draw `learning_curve.png`, and `limits.png` of a run under a limit; nothing where there is no row."""
    rows = read_rows(folder.metrics)
    if rows:
        curves = [learning_curve(record.task, rows)]
        write_learning_curves(folder.curve, curves, record.task, agent_curves(rows))
        optimum, remark = known_optimum(record)
        title = textwrap.fill(f"{record.task}: {remark}" if remark else record.task, TITLE_WIDTH)
        write_limit_figure(folder.limits, rows, title, optimum)


def known_optimum(record: RunRecord) -> tuple[Optimum | None, str]:
    """Solve a run's task under its limit, where it is finite and all agents have the same limit.

    Returns:
        The optimum, and why there is none in a task that should have one.
    """
    limit, task = record.options.get("cost_limit"), open_task(record.task)
    solvable = isinstance(limit, int | float) and record.options.get("budget_gamma") == 1
    if not solvable or not isinstance(task, Finite):
        return None, ""
    try:
        best = solve_cmdp(task, limit)
    except ConfigError as error:
        return None, str(error)
    return Optimum(best.optimum, best.multiplier), ""


def show_results(console: Console, folder: RunFolder, options: Sequence[Option]) -> None:
    """Print what came out and where it lies."""
    found = gather(folder, options)
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in _result_lines(found):
        table.add_row(name, Text(text))  # Not markup: package extras stand in brackets.
    console.print()
    console.print(table, highlight=False)


def _result_lines(found: Findings) -> list[tuple[str, str]]:
    lines = []
    if found.returns is not None:
        evaluated_after = found.evaluation["steps"]
        early = evaluated_after < found.summary["steps_taken"]
        when = f", after {describe_count(evaluated_after, 'step')}" if early else ""
        meaning = f"{found.returns.meaning}{when}; {MOST_LIKELY}"
        lines.append(("return", f"{_with_interval(found.returns)}  ({meaning})"))
        if found.returns.over_seeds:
            columns = zip(found.record.seeds, found.returns.seed_means, strict=True)
            lines.append(("by seed", "  ".join(f"{seed}: {describe_number(mean)}" for seed, mean in columns)))
        if not math.isnan(found.cost):
            lines.append(("cost", f"{describe_number(found.cost)} an episode  ({MOST_LIKELY})"))
        if found.returns.unfinished:
            lines.append(("", describe_unfinished(found.returns.unfinished)))
    summary = found.summary
    told = limit_lines(read_limits(summary))
    lines += [("" if index else "limits", line) for index, line in enumerate(told)]
    taken, requested = summary["steps_taken"], summary["steps_requested"]
    lines.append(("steps", f"{taken:,}" + (f" ({requested:,} asked for)" if taken != requested else "")))
    speed = describe_rate(summary["steps_per_second"])
    rest = f", {speed} after start-up" if speed else ""
    lines.append(("time", describe_duration(summary["time_s"]) + rest))
    workers = describe_workers(found.workers)
    lines += [("workers", workers)] if workers else []
    if summary.get("export"):
        lines.append(("export", summary["export"]))
    if summary["film"]["path"] is None:
        lines.append(("film", summary["film"]["note"]))
    folder = found.folder
    paths = (
        ("policy", folder.policy),
        ("curve", folder.curve),
        ("film", folder.film),
        ("report", folder.report),
    )
    return lines + [(name, str(path)) for name, path in paths if path.exists()]


def _with_interval(returns: ReturnSummary) -> str:
    text = describe_number(returns.estimate)
    if math.isnan(returns.low):
        return text
    return f"{text} [{describe_number(returns.low)}, {describe_number(returns.high)}]"


def _judge(plan: Plan, outcome: Outcome) -> dict[int, SafetyReport]:
    record = plan.record
    episodes = plan.algorithm.judged_episodes(record.options)
    if not episodes:
        return {}
    task = open_task(record.task)
    return {
        seed: plan.algorithm.judge(task, plan.trainer.policy(outcome.state, index), episodes, LIMIT_SEED)
        for index, seed in enumerate(record.seeds)
    }


def _film(folder: RunFolder, plan: Plan, outcome: Outcome) -> str:
    record = plan.record
    pictures = plan.algorithm.film(record.task, plan.trainer.policy(outcome.state, 0), FILM_SEED, FILMED_OF)
    if not pictures.frames:
        return pictures.note
    write_film(folder.film, pictures.frames, pictures.frames_per_second)
    which = f" The policy of seed {record.seeds[0]}." if len(record.seeds) > 1 else ""
    return pictures.note + which


def _summary(folder: RunFolder, plan: Plan, outcome: Outcome, film_note: str) -> dict[str, Any]:
    found, trainer = gather(folder, plan.algorithm.options), plan.trainer
    returns = found.returns
    return {
        "status": FINISHED if outcome.finished else INTERRUPTED,
        "steps_requested": plan.record.options[plan.algorithm.steps_option],
        "steps_taken": trainer.steps_done(outcome.state),
        "updates": trainer.updates_done(outcome.state),
        "time_s": outcome.timing.time_s,
        "start_up_s": outcome.timing.start_up_s,
        "steps_per_second": outcome.timing.steps_per_second,
        "exact_resume": trainer.exact_resume,
        "workers": found.workers or None,
        "returns": None if returns is None else _returns(returns),
        "film": {"path": folder.film.name if folder.film.is_file() else None, "note": film_note},
    }


def _returns(returns: ReturnSummary) -> dict[str, Any]:
    return {
        "estimate": returns.estimate,
        "low": returns.low,
        "high": returns.high,
        "meaning": returns.meaning,
        "seed_means": returns.seed_means,
        "seed_deviations": returns.seed_deviations,
        "episodes": returns.episodes,
        "unfinished": returns.unfinished,
    }
