"""Owns how declared options are shown: as a table, as JSON and as YAML."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dressage.cli.json_output import print_as_json
from dressage.config import Option


def print_table(options: Sequence[Option], preset: Mapping[str, Any]) -> None:
    """Print a table for people."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for head in ("option", "default", *(("preset",) if preset else ()), "meaning", "allowed"):
        table.add_column(head, no_wrap=head in {"option", "default", "preset"})
    for option in options:
        chosen = (_shown(preset.get(option.name)),) if preset else ()
        unit = f", in {option.unit}" if option.unit else ""
        cells = (option.name, _shown(option.default), *chosen, option.help, option.allowed() + unit)
        table.add_row(*map(escape, cells))
    Console().print(table, highlight=False)


def print_json(options: Sequence[Option], preset: Mapping[str, Any]) -> None:
    """Print one JSON object: option name to default, value, unit, range and meaning."""
    content = {option.name: _described(option, preset) for option in options}
    print_as_json(content)


def print_yaml(options: Sequence[Option], preset: Mapping[str, Any]) -> None:
    """Print one YAML mapping from option name to value, the preset's where it has one."""
    content = {option.name: preset.get(option.name, option.default) for option in options}
    text = yaml.safe_dump(content, sort_keys=False).rstrip()
    Console().print(text, markup=False, highlight=False, soft_wrap=True)


def _described(option: Option, preset: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "default": option.default,
        "value": preset.get(option.name, option.default),
        "kind": option.kind,
        "unit": option.unit,
        "allowed": option.allowed(),
        "minimum": option.minimum if math.isfinite(option.minimum) else None,
        "maximum": option.maximum if math.isfinite(option.maximum) else None,
        "choices": list(option.choices),
        "meaning": option.help,
    }


def _shown(value: Any) -> str:  # noqa: ANN401 (any option's value)
    if value is None:
        return ""
    # What the table shows can be typed after --set: 0.0005 rather than 5e-4, true rather than True.
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
