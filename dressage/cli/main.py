"""The entry point: gathers the verbs and turns errors into readable text and exit codes."""

import os
import sys
import traceback
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import dressage
from dressage.cli.algorithms import algorithms
from dressage.cli.config import config
from dressage.cli.doctor import doctor
from dressage.cli.evaluate import evaluate
from dressage.cli.export import export
from dressage.cli.foreign_errors import explain
from dressage.cli.inspect import inspect
from dressage.cli.play import play
from dressage.cli.plot import plot
from dressage.cli.report import report
from dressage.cli.stop_signals import GO_ON
from dressage.cli.tasks import tasks
from dressage.cli.train import train
from dressage.cli.verify import verify
from dressage.errors import ConfigError, DressageError, MissingExtraError, UnsupportedSpaceError

FAILED = 1
WRONG_USAGE = 2

USAGE_ERRORS = (ConfigError, MissingExtraError, UnsupportedSpaceError)
"""Mistakes in what was asked for; all other errors are failures while doing it."""


class ReadableErrors(TyperGroup):
    """Prints the library's own errors as text, without a stack trace."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 (typer's signature)
        """Run a verb.

        Raises:
            typer.Exit: With code 2 for wrong usage and 1 for a failure.
        """
        try:
            return super().invoke(ctx)
        except Exception as error:
            text = _text_of(error)
            if text is None:
                raise
            if ctx.params["debug"]:
                traceback.print_exception(error)
            notes = getattr(error, "__notes__", [])
            _complain("\n".join([text, *(note for note in notes if note.startswith(GO_ON))]))
            raise typer.Exit(WRONG_USAGE if isinstance(error, USAGE_ERRORS) else FAILED) from error


app = typer.Typer(
    name="dressage",
    cls=ReadableErrors,
    help="Train agents, measure them, look at them. Start with: dressage train pendulum",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for _verb in (
    train,
    evaluate,
    plot,
    play,
    report,
    export,
    verify,
    inspect,
    tasks,
    algorithms,
    config,
    doctor,
):
    app.command()(_verb)


def _show_version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"dressage {dressage.__version__}\n")
        raise typer.Exit


@app.callback()
def dressage_options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and end."),
    ] = False,
    debug: Annotated[
        bool,
        typer.Option("--debug", envvar="DRESSAGE_DEBUG", help="Show the whole trace of an error, too."),
    ] = False,
) -> None:
    """Train agents, measure them, look at them. Start with: dressage train pendulum."""
    if debug:
        # JAX leaves its own frames out otherwise.
        os.environ["JAX_TRACEBACK_FILTERING"] = "off"


def main() -> None:
    """Run the command line and end the process with its exit code."""
    app()


def _text_of(error: Exception) -> str | None:
    """Say what went wrong; None for what should not have happened, whose whole trace is wanted."""
    if isinstance(error, DressageError):
        return str(error)
    foreign = explain(error)
    if foreign is not None:
        return f"{foreign}\nThe whole trace: dressage --debug ..., or DRESSAGE_DEBUG=1."
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.strerror}: {error.filename}"
    return None


def _complain(text: str) -> None:
    from rich.console import Console

    console = Console(stderr=True)
    console.print("[bold red]error:[/bold red] ", end="")
    console.print(text, markup=False, highlight=False, soft_wrap=True)
