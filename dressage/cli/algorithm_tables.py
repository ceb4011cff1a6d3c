"""Owns how algorithms are listed."""

from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dressage.cli.algorithm import Algorithm
from dressage.cli.json_output import print_as_json
from dressage.cli.known_algorithms import ALGORITHMS, WORDS


def print_algorithms(*, as_json: bool) -> None:
    """Print every algorithm with what it trains; the first of a kind is its default."""
    if as_json:
        print_as_json([_described(algorithm) for algorithm in ALGORITHMS])
        return
    table = Table("algorithm", "trains tasks of", "what it is", box=None, header_style="bold", pad_edge=False)
    for algorithm in ALGORITHMS:
        kinds = ", ".join(WORDS[kind] for kind in (algorithm.trains, *algorithm.also_trains))
        table.add_row(algorithm.name, kinds, escape(algorithm.help))
    Console().print(table, highlight=False)


def _described(algorithm: Algorithm[Any]) -> dict[str, Any]:
    kinds = [algorithm.trains, *algorithm.also_trains]
    return {"name": algorithm.name, "trains": kinds, "meaning": algorithm.help}
