"""`dressage algorithms`: list what trains."""

from typing import Annotated

import typer


def algorithms(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the algorithms and the tasks that each of them trains."""
    from dressage.cli.algorithm_tables import print_algorithms

    print_algorithms(as_json=as_json)
