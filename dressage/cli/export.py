"""`dressage export`: write the policy of a run as a file that a robot runs."""

from pathlib import Path
from typing import Annotated

import typer

from dressage.cli.run_argument import RunArgument


def export(
    run: RunArgument,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The file; its ending tells the format. Without it: policy.onnx in the run's policy folder.",
            show_default=False,
        ),
    ] = None,
    file_format: Annotated[
        str | None, typer.Option("--format", help="onnx, safetensors or stablehlo.", show_default=False)
    ] = None,
    trained_seed: Annotated[
        int | None,
        typer.Option(help="Whose policy, of several seeds. Without it: of the first.", show_default=False),
    ] = None,
    critic: Annotated[
        bool,
        typer.Option(
            "--critic", help="Keep the critic in a safetensors file, to go on training: twice the size."
        ),
    ] = False,
) -> None:
    """Export the trained policy into one file, checked against the policy before it is put in place."""
    from dressage.cli.start_up import start_jax

    start_jax()
    from dressage.cli.run_export import export_from_run

    for path in export_from_run(run, output, file_format, trained_seed, critic=critic):
        typer.echo(f"{path}  {path.stat().st_size:,} bytes, verified against the policy")
