"""`dressage config`: print all options with defaults, units and ranges."""

from typing import Annotated

import typer

from dressage.errors import ConfigError


def config(
    task: Annotated[
        str | None, typer.Option(help="Show the values that this task's preset sets.", show_default=False)
    ] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(help="Whose options. Without it: the task's default, or ppo.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with units and ranges.")] = False,
    as_yaml: Annotated[bool, typer.Option("--yaml", help="Print YAML, names and values only.")] = False,
) -> None:
    """Print every option with its default, unit, range and meaning."""
    if as_json and as_yaml:
        raise ConfigError("--json and --yaml exclude each other.")
    from dressage.cli.known_algorithms import ALGORITHMS, algorithm_for, algorithm_named
    from dressage.cli.option_tables import print_json, print_table, print_yaml

    if task:
        from dressage.cli.task_names import open_task

        learner = algorithm_for(task, open_task(task), algorithm)
    else:
        learner = algorithm_named(algorithm or ALGORITHMS[0].name)
    preset = learner.presets.get(task or "", {})
    if as_json:
        print_json(learner.options, preset)
    elif as_yaml:
        print_yaml(learner.options, preset)
    else:
        print_table(learner.options, preset)
