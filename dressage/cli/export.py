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
            help="The file; its ending tells the format. Of several agents a folder, with one in it for each "
            "format. Without it: the run's policy folder.",
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
            "--critic", help="Keep the critic in safetensors files, to go on training: twice the size."
        ),
    ] = False,
) -> None:
    """Export the trained policy, one file an agent, checked against the policy before it is put in place."""
    from dressage.cli.start_up import start_jax

    start_jax()
    from dressage.cli.run_export import export_from_run
    from dressage.export.manifest import MANIFEST

    paths = export_from_run(run, output, file_format, trained_seed, critic=critic)
    for path in paths:
        typer.echo(f"{path}  {path.stat().st_size:,} bytes, verified against the policy")
    if len(paths) > 1:
        typer.echo(f"{paths[0].with_name(MANIFEST)}  lists them, with their checksums")
