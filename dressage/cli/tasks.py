"""`dressage tasks`: list what can be trained on."""

from typing import Annotated

import typer


def tasks(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List the built-in tasks with their spaces, and the prefixes that reach other ecosystems."""
    from dressage.cli.task_tables import print_tasks

    print_tasks(as_json=as_json)
