"""`dressage report`: make the report of a run again."""

import typer

from dressage.cli.run_argument import RunArgument


def report(run: RunArgument) -> None:
    """Make report.html again from what the run directory holds."""
    from dressage.cli.known_algorithms import algorithm_named
    from dressage.cli.results import draw_curves
    from dressage.reporting.report import write_report
    from dressage.reporting.run_folder import RunFolder, RunRecord

    folder = RunFolder(run)
    record = RunRecord.read(folder)
    draw_curves(folder, record)
    typer.echo(str(write_report(folder, algorithm_named(record.algorithm).options)))
