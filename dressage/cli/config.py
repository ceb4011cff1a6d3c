"""`dressage config`: print all options with defaults, units and ranges."""

from typing import Annotated

import typer

from dressage.errors import ConfigError


def config(
    task: Annotated[
        str | None, typer.Option(help="Show the values that this task's preset sets.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with units and ranges.")] = False,
    as_yaml: Annotated[bool, typer.Option("--yaml", help="Print YAML, names and values only.")] = False,
) -> None:
    """Print every option with its default, unit, range and meaning."""
    if as_json and as_yaml:
        raise ConfigError("--json and --yaml exclude each other.")
    from dressage.cli.option_tables import print_json, print_table, print_yaml
    from dressage.cli.presets import preset_of
    from dressage.ppo import OPTIONS

    if task:
        from dressage.envs import make

        make(task)  # Refuses a misspelled task, with the nearest one.
    preset = preset_of(task) if task else {}
    if as_json:
        print_json(OPTIONS, preset)
    elif as_yaml:
        print_yaml(OPTIONS, preset)
    else:
        print_table(OPTIONS, preset)
