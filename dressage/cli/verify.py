"""`dressage verify`: let exported files prove themselves again."""

from pathlib import Path
from typing import Annotated

import typer


def verify(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Exported policies.", show_default=False)
    ],
) -> None:
    """Check exported policies: checksum, structure, the test that each carries, batch sizes, extremes."""
    from dressage.cli.card_pages import print_verification
    from dressage.export import verify_file

    results = [verify_file(path) for path in files]
    for result in results:
        print_verification(result)
    if not all(result.passed for result in results):
        raise typer.Exit(1)
