"""Owns how numbers, durations and counts are put into words, the same in the terminal and in the report."""

import math

MOST_LIKELY, SAMPLED = "most likely actions", "sampled actions"
"""How episodes were played: what an evaluation of a run shows by default, and what a limit is judged by."""


def describe_number(value: float) -> str:
    """Return a return with as many digits as matter; `-` for what is not known."""
    if math.isnan(value):
        return "-"
    return f"{value:.3g}" if abs(value) < 10 else f"{value:,.1f}"


def describe_duration(seconds: float) -> str:
    """Return a duration as a person would say it: `4.8 s`, `48 s`, `3 min 20 s`, `2 h 05 min`."""
    if not math.isfinite(seconds):
        return "?"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def describe_count(count: int, noun: str) -> str:
    """Return a count with its noun in the right number: `1 seed`, `5 seeds`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def describe_rate(steps_per_second: float | None) -> str:
    """Return a speed, `12,345 steps/s`; empty where none was measured."""
    known = steps_per_second is not None and math.isfinite(steps_per_second)
    return f"{steps_per_second:,.0f} steps/s" if known else ""


def describe_unfinished(unfinished: int) -> str:
    """Say how many evaluation episodes were left out of the averages; empty for none."""
    if not unfinished:
        return ""
    verbs = "is" if unfinished == 1 else "are"
    return f"{describe_count(unfinished, 'evaluation episode')} did not finish and {verbs} left out."
