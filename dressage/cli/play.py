"""`dressage play`: film the policy of a run."""

from pathlib import Path
from typing import Annotated

import typer

from dressage.cli.run_argument import RunArgument
from dressage.errors import DressageError


def play(
    run: RunArgument,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="A .gif or .mp4 file. Without it: RUN/rollout.gif.", show_default=False
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Draws the initial states.")] = 0,
    episodes: Annotated[
        int,
        typer.Option(min=1, help="Of so many episodes, that with the median return is filmed; 1 films one."),
    ] = 11,
    trained_seed: Annotated[
        int | None,
        typer.Option(help="Whose policy, of several seeds. Without it: of the first.", show_default=False),
    ] = None,
) -> None:
    """Film an episode of the trained policy, as it usually is: the median of several."""
    from dressage.cli.start_up import start_jax

    start_jax()
    from dressage.cli.measure import film_run

    path, note = film_run(run, output, seed, trained_seed, episodes)
    if path is None:
        raise DressageError(note)
    typer.echo(f"{path}  {note}")
