"""`dressage plot`: draw the learning curves of one or several runs into one figure."""

from pathlib import Path
from typing import Annotated

import typer


def plot(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run directories.", show_default=False)
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="A .png file. Without it: RUN/learning_curve.png, or learning_curves.png in the working "
            "directory for several runs.",
            show_default=False,
        ),
    ] = None,
    title: Annotated[
        str | None, typer.Option(help="Title. Without it: the task.", show_default=False)
    ] = None,
) -> None:
    """Draw learning curves with their spread, to compare runs."""
    from dressage.cli.compare import draw_runs
    from dressage.reporting.wording import describe_count

    typer.echo(f"{draw_runs(runs, output, title)}  Returns of {describe_count(len(runs), 'run')}.")
