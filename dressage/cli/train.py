"""`dressage train`: train an agent, or go on with a run that was stopped."""

from pathlib import Path
from typing import Annotated, Any

import typer

from dressage.cli.counts import positive_count
from dressage.errors import ConfigError

RunOption = Annotated[
    Path | None, typer.Option("--run", help="Run directory. Without it: runs/TASK-SEED.", show_default=False)
]

SHOWN = {
    "task": "TASK",
    "settings": "--set",
    "init_from": "--init-from",
    "statistics": "--keep-statistics/--reset-statistics",
}
"""How parameters are spelled where not by their own names."""


def train(
    context: typer.Context,
    task: Annotated[
        str | None,
        typer.Argument(
            metavar="TASK", help="Task to train on; `dressage tasks` lists them.", show_default=False
        ),
    ] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(
            help="What trains; `dressage algorithms` lists them. Without it: the task's default.",
            show_default=False,
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            parser=positive_count,
            metavar="COUNT",
            help="Environment steps of each seed, rounded up to whole updates; 1M and 1e6 are a million.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="First seed.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds, trained at once: S, S+1, ...")] = 1,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Change an option; repeatable. See `dressage config`."
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="A YAML file of options; for tasks of rsl_rl its own training configuration.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, help="Workers that step the environments, for tasks of rsl_rl.", show_default=False
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Ray cluster that the workers run on: local, or a head's address.",
            show_default=False,
        ),
    ] = None,
    run: RunOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --run.")] = False,
    resume_from: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="UPDATES",
            help="Go on with the run in --run from an older checkpoint, that after so many updates.",
            show_default=False,
        ),
    ] = None,
    preset: Annotated[bool, typer.Option(help="Use the task's preset, where it has one.")] = True,
    init_from: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Go on training shipped policies, in a task with the same spaces: a .safetensors file, a "
            "policies.json of several agents, or a folder or run with either.",
            show_default=False,
        ),
    ] = None,
    statistics: Annotated[
        bool,
        typer.Option(
            "--keep-statistics/--reset-statistics",
            help="With --init-from: whether the policy's observation statistics are taken over.",
        ),
    ] = True,
    film: Annotated[
        bool | None,
        typer.Option(
            "--film/--no-film",
            help="Film the policy at the end; a resumed run does as it was started.",
            show_default=False,
        ),
    ] = None,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard files too.")] = False,
    wandb: Annotated[
        str | None,
        typer.Option(metavar="PROJECT", help="Send the metrics to Weights & Biases.", show_default=False),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no live progress.")] = False,
) -> None:
    """Train an agent on a task.

    The run directory gets config.json, metrics.jsonl, checkpoints/, policy/, learning_curve.png, rollout.gif,
    summary.json and report.html. Ctrl-C saves and says how to go on.
    """
    resume = resume or resume_from is not None
    _check_given(context, task, run, resume=resume)
    from dressage.cli.start_up import start_jax

    start_jax()
    from dressage.cli.run_setup import Request, default_folder
    from dressage.cli.session import Extras, resume_run, start_run

    extras = Extras(film=film, tensorboard=tensorboard, wandb=wandb, quiet=quiet)
    if resume and run is not None:
        raise typer.Exit(resume_run(run, resume_from, extras))
    request = Request(
        task or "",
        algorithm,
        steps,
        seed,
        seeds,
        settings or (),
        use_preset=preset,
        initial_policy=init_from,
        keep_statistics=statistics,
        config=config,
        workers=workers,
        cluster=cluster,
        film=film is not False,
    )
    raise typer.Exit(start_run(request, run or default_folder(request.task, seed), extras))


def _check_given(context: typer.Context, task: str | None, run: Path | None, *, resume: bool) -> None:
    if resume:
        _refuse_beside_resume(context)
        if run is None:
            raise ConfigError("--resume needs the run to go on with: dressage train --run DIR --resume")
    elif task is None:
        raise ConfigError("Which task? For example: dressage train pendulum. `dressage tasks` lists them.")
    if _was_given(context, "statistics") and not _was_given(context, "init_from"):
        raise ConfigError(
            "--keep-statistics and --reset-statistics say what becomes of a policy's statistics: "
            "name the policy with --init-from FILE."
        )


def _refuse_beside_resume(context: typer.Context) -> None:
    fixed = (
        *("task", "algorithm", "steps", "seed", "seeds", "settings", "preset", "init_from", "statistics"),
        *("config", "workers", "cluster"),
    )
    given = [name for name in fixed if _was_given(context, name)]
    if given:
        shown = ", ".join(SHOWN.get(name, f"--{name}") for name in given)
        raise ConfigError(
            f"A resumed run keeps its task and options: leave out {shown}, or start another run."
        )


def _was_given(context: typer.Context, name: str) -> bool:
    source: Any = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
