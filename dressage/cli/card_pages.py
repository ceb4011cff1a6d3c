"""Owns how an exported policy's card and its verification are printed."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dressage.export import Card, Score, Signal, Verification
from dressage.export.verification import critic_bytes
from dressage.learning.specs import AGENT
from dressage.reporting.wording import describe_count, describe_number

MARKS = {
    True: "[green]passed[/green]",
    False: "[bold red]failed[/bold red]",
    None: "[yellow]skipped[/yellow]",
}

ACTIONS = {True: " with sampled actions", False: " with the most likely actions", None: ""}


def print_verification(result: Verification) -> None:
    """Print the checks of a file as a table."""
    console = Console()
    verdict = "is what it says it is" if result.passed else "has not proved to be what it says it is"
    console.print(Text(f"{result.path} {verdict}", style="bold"), highlight=False)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    for check in result.checks:
        table.add_row(Text(check.name), MARKS[check.passed], Text(check.note))
    console.print(table, highlight=False)


def print_cards(described: Mapping[Path, Mapping[str, Any]]) -> None:
    """Print the card of every policy once, with all files that hold it.

    Args:
        described: What `describe_file` says of each file.
    """
    policies: dict[str, list[Path]] = {}
    for path, description in described.items():
        same = json.dumps([description.get("card"), description["weights_sha256"]])
        policies.setdefault(same, []).append(path)
    for paths in policies.values():
        print_card(paths, described[paths[0]])


def print_card(paths: Sequence[Path], description: Mapping[str, Any]) -> None:
    """Print a policy's card.

    Args:
        paths: The files that hold the policy.
        description: What the first one says of itself.
    """
    console = Console()
    card = Card.from_json(description["card"]) if "card" in description else Card()
    title = " ".join(part for part in (card.algorithm, "on" if card.task else "", card.task) if part)
    console.print(Text(f"{paths[0]}  {title}", style="bold"), highlight=False)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in (*_facts(card, description), *_sizes(paths)):
        table.add_row(name, Text(text))
    console.print(table, highlight=False)
    _print_ports(console, "goes in", _inputs(description["graph"]), card.observation)
    _print_ports(console, "comes out", description["graph"]["outputs"], card.action)


def _facts(card: Card, description: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if card.agent and card.agent != AGENT:  # The name of an agent that is the only one says nothing.
        yield "agent", card.agent
    if card.training_steps is not None:
        seed = "" if card.seed is None else f", seed {card.seed}"
        yield "training", f"{card.training_steps:,} environment steps{seed}"
    yield "return", _described(card.returns)
    yield "cost", _described(card.cost)
    if card.control_period_s is not None:
        yield "control period", f"{card.control_period_s:g} s"
    if card.note:
        yield "note", card.note
    if description["graph"]["states"]:
        yield "memory", "recurrent: give the state that it returns back in; an episode starts at zeros"
    yield "written by", f"dressage {description['dressage']}, format {description['format']}"
    yield "weights", f"sha256 {description['weights_sha256']}"


def _sizes(paths: Sequence[Path]) -> Iterator[tuple[str, str]]:
    for index, path in enumerate(paths):
        critic = critic_bytes(path)
        kept = f", of which {critic:,} are its critic: training goes on from it, acting needs none"
        text = f"{path.stat().st_size:,} bytes{kept if critic else ''}"
        yield ("size", text) if index == 0 else ("the same in", f"{path}  {text}")


def _described(score: Score | None) -> str:
    if score is None:
        return "not measured"
    text = describe_number(score.estimate)
    if score.low is not None and score.high is not None:
        text += f" [{describe_number(score.low)}, {describe_number(score.high)}]"
    if score.episodes:
        actions = ACTIONS[score.sampled]
        text += f"  (mean of {score.episodes:,} episodes{actions} and its 95 % interval"
        text += "" if score.deviation is None else f", standard deviation {describe_number(score.deviation)}"
        text += f"; the mean over all {score.mean_of} agents" if score.mean_of else ""
        early = score.after_steps
        text += "" if early is None else f"; of the policy after {describe_count(early, 'step')}"
        text += ")"
    if score.limit is not None:
        text += f"  limit {describe_number(score.limit)}: {score.verdict or 'not judged'}"
    return text


def _inputs(graph: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [port for port in graph["inputs"] if port["name"] not in graph["states"]]


def _print_ports(
    console: Console, title: str, ports: Sequence[Mapping[str, Any]], signals: Sequence[Signal]
) -> None:
    console.print(Text(title, style="bold"))
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    for port in ports:
        shape = "x".join(map(str, port["shape"])) or "one number"
        table.add_row(port["name"], port["dtype"], shape, "")
        own = port["name"] in ("observation", "action")
        for index, signal in enumerate(signals if own else ()):
            table.add_row(f"  {index}", signal.name, signal.unit, _range(signal))
    console.print(table, highlight=False)


def _range(signal: Signal) -> str:
    if signal.low is None and signal.high is None:
        return ""
    low, high = ("unbounded" if end is None else f"{end:g}" for end in (signal.low, signal.high))
    return f"{low} to {high}"
