"""Owns how the limit reports of a run stand in `summary.json`, in the terminal and in `report.html`."""

from collections.abc import Iterator, Mapping
from typing import Any

from dressage.reporting import report_page as html
from dressage.reporting.wording import SAMPLED, describe_count, describe_number
from dressage.rl.safety import AgentSafety, Interval, SafetyReport, Verdict

MOST_LINES = 8
"""Verdicts that a terminal shows one by one; of more, those that are kept are counted."""


def describe_limits(limits: Mapping[int, SafetyReport]) -> list[dict[str, Any]]:
    """Return the reports by seed as `summary.json` holds them."""
    return [{"seed": seed, **report.as_json()} for seed, report in limits.items()]


def read_limits(summary: Mapping[str, Any]) -> dict[int, SafetyReport]:
    """Return the reports by seed; empty for a run without a limit, or one that did not end.

    Args:
        summary: What `summary.json` holds.
    """
    return {one["seed"]: SafetyReport.from_json(one) for one in summary.get("limits", [])}


def limit_lines(limits: Mapping[int, SafetyReport]) -> Iterator[str]:
    """Say how the episodes were played, then in a line each what they say of every agent's limit."""
    if not limits:
        return
    episodes = max(report.episodes for report in limits.values())
    yield f"{describe_count(episodes, 'episode')}{' for each seed' if len(limits) > 1 else ''}, {SAMPLED}:"
    judged = [(seed, one) for seed, report in limits.items() for one in report.agents]
    several = len(limits) > 1
    shown = judged if len(judged) <= MOST_LINES else [one for one in judged if not _is_kept(one[1])]
    if len(shown) < len(judged):
        yield f"{len(judged) - len(shown)} of {len(judged)} kept"
    for seed, one in shown:
        place = f"{one.agent}, seed {seed}" if several else one.agent
        numbers = f"return {_words(one.returns)}, cost {_words(one.costs)}, limit {one.limit:g}"
        yield f"{place}: {numbers}: {one.verdict}"


def limit_section(limits: Mapping[int, SafetyReport], picture: str = "") -> str:
    """Return the part of the page that says whether limits were kept; nothing for a run without one.

    Args:
        limits: By seed; empty before training ended.
        picture: What training went through, as HTML.
    """
    if not limits:
        return html.section("Cost limits", picture)
    heads = next(iter(limits.values())).rows()[0]
    several = len(limits) > 1
    rows = [
        (str(seed), *row) if several else row for seed, report in limits.items() for row in report.rows()[1:]
    ]
    note = html.paragraph(
        "Means with their 95 % intervals (Student's) over whole episodes that were played after training, "
        "with sampled actions. Kept: the interval of the cost ends at the limit or below it. Not kept: it "
        "begins above. Undecided: the limit lies within, or episodes did not end."
    )
    table = html.table(("seed", *heads) if several else heads, rows)
    return html.section("Cost limits", table + note + picture)


def _words(interval: Interval) -> str:
    low, mean, high = map(describe_number, (interval.low, interval.mean, interval.high))
    return f"{mean} [{low}, {high}]"


def _is_kept(one: AgentSafety) -> bool:
    return one.verdict is Verdict.KEPT
