"""Owns the report of a run: gathers what the run directory holds into one self-contained HTML page."""

import base64
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from dressage.config import Option
from dressage.reporting import report_page as html
from dressage.reporting.limit_reports import limit_section, read_limits
from dressage.reporting.metric_rows import (
    COST,
    Row,
    agents_of,
    costs_were_seen,
    episode_returns,
    of_kind,
    over_seeds,
    read_rows,
    seed_values,
)
from dressage.reporting.plots import diagnostics_svg
from dressage.reporting.run_folder import FINISHED, RunFolder, RunRecord, read_summary
from dressage.reporting.seed_statistics import ReturnSummary, summarize_returns
from dressage.reporting.wording import (
    MOST_LIKELY,
    describe_count,
    describe_duration,
    describe_number,
    describe_unfinished,
)

MEDIA_TYPES = {".png": "image/png", ".gif": "image/gif", ".svg": "image/svg+xml"}


@dataclass(frozen=True)
class Findings:
    """Everything that a report tells.

    Attributes:
        folder: The run directory.
        record: How the run was started.
        rows: The metric rows.
        summary: What `summary.json` says; empty for a run that never finished.
        returns: The last evaluation; None for a run without one.
        evaluation: The row of that evaluation; empty for a run without one.
        options: Declarations of the learner's options.
    """

    folder: RunFolder
    record: RunRecord
    rows: Sequence[Row]
    summary: Mapping[str, Any]
    returns: ReturnSummary | None
    evaluation: Row
    options: Sequence[Option]

    @property
    def cost(self) -> float:
        """Mean cost of an episode of that evaluation; NaN where nothing ever cost and nothing was limited."""
        seen = self.record.options.get("cost_limit") is not None or costs_were_seen(self.rows)
        return over_seeds(self.evaluation, COST) if seen else math.nan

    @property
    def workers(self) -> dict[str, int]:
        """How many workers were lost and how many made anew, over all seeds; empty where there are none."""
        row = next(iter(reversed(of_kind(self.rows, "train"))), {})
        counted = {"lost": "runtime/lost_workers", "restarts": "runtime/restarts"}
        return {name: int(np.nansum(seed_values(row, full))) for name, full in counted.items() if full in row}


def write_report(folder: RunFolder, options: Sequence[Option]) -> Path:
    """Write `report.html` from what the run directory holds.

    Args:
        folder: The run directory; pictures that are not there are left out.
        options: Declarations of the learner's options, for defaults, units and meanings.

    Raises:
        ConfigError: If the folder holds no run.
        CheckpointError: If a file of the run is damaged.
    """
    found = gather(folder, options)
    parts = [_header(found), _headline(found), _limits(found), _pictures(found)]
    parts += [_seeds(found), _agents(found)]
    parts += [_diagnostics(found), _options(found), _circumstances(found), _going_on(found), _footer(found)]
    text = html.page(f"{found.record.task} - dressage", "\n".join(part for part in parts if part))
    folder.report.write_text(text, encoding="utf-8")
    return folder.report


def gather(folder: RunFolder, options: Sequence[Option]) -> Findings:
    """Read what the run directory holds."""
    rows = read_rows(folder.metrics)
    evaluations = of_kind(rows, "eval")
    returns = summarize_returns(episode_returns(evaluations[-1])) if evaluations else None
    last = evaluations[-1] if evaluations else {}
    return Findings(folder, RunRecord.read(folder), rows, read_summary(folder), returns, last, options)


def describe_resume(exact: bool) -> str:
    """Say whether a resumed run ends with the same parameters as one that was never stopped."""
    return "yes" if exact else "no (environment state not saved)"


def describe_workers(counts: Mapping[str, int]) -> str:
    """Say what became of a run's workers; empty where nothing did."""
    if not any(counts.values()):
        return ""
    told = f"{counts['lost']:,} lost, {counts['restarts']:,} made anew"
    return f"{told}; the events in metrics.jsonl say which and why"


def _header(found: Findings) -> str:
    record = found.record
    status = found.summary.get("status", "unfinished")
    badge = f'<span class="badge {"" if status == FINISHED else "interrupted"}">{escape(status)}</span>'
    seeds = describe_count(len(record.seeds), "seed")
    lead = f"{record.algorithm.upper()} · {seeds} · started {record.created.replace('T', ' ')}"
    return f'<header><h1>{escape(record.task)}</h1>{badge}<p class="lead">{escape(lead)}</p></header>'


def _headline(found: Findings) -> str:
    if found.returns is None:
        result = '<div class="result">no evaluation</div>'
    else:
        result = _result(found.returns, found.evaluation["steps"])
    return html.section("", f'<div class="headline"><div>{result}</div>{html.tiles(_tiles(found))}</div>')


def _result(returns: ReturnSummary, evaluated_after: int) -> str:
    low, high = describe_number(returns.low), describe_number(returns.high)
    interval = f" [{low}, {high}]" if low != "-" else ""
    size = f'<div class="result">{describe_number(returns.estimate)} <small>{interval}</small></div>'
    what = f"return per episode after {describe_count(evaluated_after, 'step')}: {returns.meaning}"
    remark = f"{what}; {MOST_LIKELY}. {describe_unfinished(returns.unfinished)}"
    return f"{size}<p>{escape(remark.strip())}</p>"


def _tiles(found: Findings) -> list[tuple[str, str]]:
    last = found.rows[-1] if found.rows else {"steps": 0, "time_s": 0.0}
    entries = [("environment steps" + _each(found), f"{last['steps']:,}")]
    entries.append(("training time", describe_duration(last["time_s"])))
    if found.summary:
        speed = found.summary["steps_per_second"]
        entries += [("steps per second", f"{speed:,.0f}")] if speed else []
        entries.append(("first start-up", describe_duration(found.summary["start_up_s"])))
    if found.returns is not None:
        entries.append(("evaluation episodes", f"{found.returns.episodes:,}"))
    if not math.isnan(found.cost):
        entries.append((f"cost per episode, {MOST_LIKELY}", describe_number(found.cost)))
    return entries


def _limits(found: Findings) -> str:
    what = "Return, cost and price of cost over environment steps"
    return limit_section(read_limits(found.summary), _embedded(found.folder.limits, what, "", ""))


def _pictures(found: Findings) -> str:
    curve = _embedded(found.folder.curve, "The learning curve", "", "")
    film = _embedded(found.folder.film, "A film of the trained policy", _film_caption(found), "film")
    if not curve and not film:
        return ""
    missing = "" if film else html.paragraph(_film_caption(found))
    layout = "pictures" if curve and film else "pictures single"
    return html.section("What it learned", f'<div class="{layout}">{curve}{film}</div>{missing}')


def _film_caption(found: Findings) -> str:
    return str(found.summary.get("film", {}).get("note", ""))


def _seeds(found: Findings) -> str:
    if found.returns is None or not found.returns.over_seeds:
        return ""
    columns = zip(found.record.seeds, found.returns.seed_means, found.returns.seed_deviations, strict=True)
    rows = [
        (str(seed), describe_number(mean), describe_number(deviation)) for seed, mean, deviation in columns
    ]
    note = html.paragraph(
        "Interquartile mean and stratified bootstrap interval as in Agarwal et al., "
        "Deep Reinforcement Learning at the Edge of the Statistical Precipice, NeurIPS 2021."
    )
    return html.section("Seeds", html.table(("seed", "mean return", "std over episodes"), rows) + note)


def _agents(found: Findings) -> str:
    row = found.evaluation
    agents = agents_of(row)
    heads = {"mean return": "eval/return_mean"} | ({} if math.isnan(found.cost) else {"mean cost": COST})
    shown = {head: name for head, name in heads.items() if agents and f"{name}/{agents[0]}" in row}
    rows = [
        (agent, *(describe_number(over_seeds(row, f"{name}/{agent}")) for name in shown.values()))
        for agent in agents
    ]
    if not rows:
        return ""
    note = html.paragraph("The return per episode above is the mean over the agents.")
    return html.section("Agents", html.table(("agent", *shown), rows) + note)


def _diagnostics(found: Findings) -> str:
    drawing = diagnostics_svg(found.rows)
    if not drawing:
        return ""
    source = _data_uri(drawing.encode(), ".svg")
    shown = html.picture(source, "Training diagnostics over environment steps", "")
    return html.section("Training diagnostics", f'<div class="diagnostics">{shown}</div>')


def _options(found: Findings) -> str:
    record = found.record
    declared = {option.name: option for option in found.options}
    changed = [_option_row(declared.get(name), name, value) for name, value in record.changed.items()]
    everything = [_option_row(declared.get(name), name, value) for name, value in record.options.items()]
    heads = ("option", "value", "default", "unit", "meaning")
    few = html.table(heads, changed, quiet=(2, 3, 4)) if changed else html.paragraph("None.")
    preset = ", ".join(name for name in record.preset if name in record.changed)
    note = html.paragraph(f"From the preset of {record.task}: {preset}." if preset else "")
    whole = html.table(heads, everything, quiet=(2, 3, 4))
    return html.section(
        "Options changed from their defaults",
        f"{few}{note}<details><summary>All options</summary>{whole}</details>",
    )


def _option_row(option: Option | None, name: str, value: Any) -> tuple[str, ...]:  # noqa: ANN401 (any option's value)
    if option is None:
        return name, str(value), "", "", ""
    return name, str(value), str(option.default), option.unit, option.help


def _circumstances(found: Findings) -> str:
    record = found.record
    versions = html.table(("package", "version"), record.versions.items())
    facts = list(record.machine.items())
    if found.summary:
        facts += [("steps asked for", f"{found.summary['steps_requested']:,}{_each(found)}")]
        facts += [("steps taken", f"{found.summary['steps_taken']:,}{_each(found)}")]
        facts += [("updates", f"{found.summary['updates']:,}")]
        facts += [("exact resume", describe_resume(found.summary["exact_resume"]))]
    workers = describe_workers(found.workers)
    facts += [("workers", workers)] if workers else []
    circumstances = html.section("Circumstances", html.table(("what", "value"), facts))
    return f'<div class="columns">{circumstances}{html.section("Versions", versions)}</div>'


def _going_on(found: Findings) -> str:
    run = shlex.quote(str(found.folder.path))
    lines = []
    if found.summary.get("status") != FINISHED:
        lines.append(("go on with training", f"dressage train --run {run} --resume"))
    lines += [
        ("measure the policy on more episodes", f"dressage evaluate {run} --episodes 100"),
        ("film it", f"dressage play {run} --output film.mp4"),
        ("compare it with another run", f"dressage plot {run} OTHER_RUN --output compared.png"),
        ("train it on other seeds; --set KEY=VALUE changes options", _start_command(found)),
    ]
    return html.section("How to go on", html.commands(lines))


def _start_command(found: Findings) -> str:
    record = found.record
    words = ["dressage", "train", shlex.quote(record.task)]
    words += ["--seed", str(record.seeds[-1] + 1)]
    if len(record.seeds) > 1:
        words += ["--seeds", str(len(record.seeds))]
    given = (name for name in record.changed if record.preset.get(name) != record.changed[name])
    words += [f"--set {shlex.quote(f'{name}={record.changed[name]}')}" for name in given]
    return " ".join(words)


def _footer(found: Findings) -> str:
    place = escape(str(found.folder.path))
    return f"<footer>{place} · metrics.jsonl and config.json hold every figure shown here.</footer>"


def _embedded(path: Path, text: str, caption: str, kind: str) -> str:
    if not path.is_file():
        return ""
    return html.picture(_data_uri(path.read_bytes(), path.suffix), text, caption, kind)


def _data_uri(content: bytes, suffix: str) -> str:
    return f"data:{MEDIA_TYPES[suffix]};base64,{base64.b64encode(content).decode('ascii')}"


def _each(found: Findings) -> str:
    return " (each seed)" if len(found.record.seeds) > 1 else ""
