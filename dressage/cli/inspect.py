"""`dressage inspect`: show what an exported policy is."""

from pathlib import Path
from typing import Annotated

import typer


def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An exported policy.", show_default=False)],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show a policy's card: what goes in and comes out, how it was trained, what it achieved."""
    from dressage.cli.card_pages import print_card
    from dressage.cli.json_output import print_as_json
    from dressage.export import describe_file

    description = describe_file(file)
    if as_json:
        print_as_json({name: value for name, value in description.items() if name != "test"})
    else:
        print_card(file, description)
