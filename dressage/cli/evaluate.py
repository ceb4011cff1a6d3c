"""`dressage evaluate`: measure the policy of a run on fresh episodes."""

from typing import Annotated

import typer

from dressage.cli.counts import positive_count
from dressage.cli.run_argument import RunArgument

MEASURED = 100
JUDGED = 1000  # A limit is decided by an interval, which fewer episodes leave wide.


def evaluate(
    run: RunArgument,
    episodes: Annotated[
        int | None,
        typer.Option(
            parser=positive_count,
            metavar="COUNT",
            help="Episodes for each seed's policy. Without it 100, with --require-limits 1000.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Draws the initial states.")] = 0,
    stochastic: Annotated[
        bool, typer.Option("--stochastic", help="Sample actions instead of taking the most likely ones.")
    ] = False,
    require_limits: Annotated[
        bool,
        typer.Option(
            "--require-limits",
            help="Judge each agent's cost limit, with sampled actions; fail unless every one is kept.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure the trained policy: mean return with its 95 % interval, by seed."""
    from dressage.cli.start_up import start_jax

    start_jax()
    if require_limits:
        from dressage.cli.limit_verdicts import judge_run, show_verdicts

        if not show_verdicts(judge_run(run, episodes or JUDGED, seed), as_json=as_json):
            raise typer.Exit(1)
        return
    from dressage.cli.measure import measure_run, show_measure

    show_measure(measure_run(run, episodes or MEASURED, seed, stochastic=stochastic), as_json=as_json)
