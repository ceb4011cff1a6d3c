"""Owns how algorithms are listed."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dressage.cli.json_output import print_as_json
from dressage.cli.known_algorithms import ALGORITHMS, WORDS


def print_algorithms(*, as_json: bool) -> None:
    """Print every algorithm with what it trains; the first of a kind is its default."""
    if as_json:
        print_as_json([{"name": a.name, "trains": a.trains, "meaning": a.help} for a in ALGORITHMS])
        return
    table = Table("algorithm", "trains tasks of", "what it is", box=None, header_style="bold", pad_edge=False)
    for algorithm in ALGORITHMS:
        table.add_row(algorithm.name, WORDS[algorithm.trains], escape(algorithm.help))
    Console().print(table, highlight=False)
