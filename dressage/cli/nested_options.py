"""Owns options that hold nested mappings: files of them, single entries, and how two of them differ."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from dressage.cli.algorithm import Algorithm
from dressage.cli.yaml_values import read_yaml
from dressage.config import check_names, merge_configs, suggest
from dressage.errors import ConfigError


def read_config(path: Path | None, algorithm: Algorithm[Any]) -> dict[str, Any]:
    """Read the options of a YAML file.

    Args:
        path: The file; None for none.
        algorithm: Whose options; one with a `config_option` takes the whole file as that, unless the file
            names that option itself, as what `dressage config --yaml` prints does, or options alone.

    Raises:
        ConfigError: If there is no such file, or it holds no YAML mapping.
    """
    if path is None:
        return {}
    if not path.is_file():
        raise ConfigError(f"--config: there is no file {path}.")
    try:
        content = read_yaml(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config: {path} is no YAML: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"--config: {path} must hold a mapping from names to values.")
    known, whole = [option.name for option in algorithm.options], algorithm.config_option
    if whole is not None and whole not in content and not content.keys() <= set(known):
        _refuse_mixed(path, [name for name in content if name in known], whole)
        return {whole: content}
    check_names(map(str, content), known, f"{path}: {algorithm.title}")
    return content


def _refuse_mixed(path: Path, options: list[str], whole: str) -> None:
    if options:
        raise ConfigError(
            f"--config: {path} has {options[0]!r}, an option of dressage, among the entries of {whole}. Put "
            f"those beneath {whole}:, or leave it out and say --set {options[0]}=VALUE."
        )


def apply_settings(
    algorithm: Algorithm[Any], base: Mapping[str, Any], settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Lay what `--set` gives over options; `NAME.KEY.KEY` changes one entry of a mapping.

    Args:
        algorithm: Whose options.
        base: What a preset or a file gives.
        settings: By name.

    Raises:
        ConfigError: If an entry lies where the mapping has none.
    """
    defaults = {option.name: option.default for option in algorithm.options}
    found = dict(base)
    for name, value in settings.items():
        head, _, path = name.partition(".")
        if name in defaults or not path:
            found[name] = value
        else:
            found[head] = _with_entry(head, found.get(head, defaults[head]), path.split("."), value)
    return found


def differences(options: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that differ from their defaults; of a mapping the entries that do, with dots."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        default = defaults.get(name)
        if isinstance(value, Mapping) and isinstance(default, Mapping):
            found |= {f"{name}.{key}": item for key, item in differences(value, default).items()}
            found |= {f"{name}.{key}": None for key in default if key not in value}
        elif value != default or name not in defaults:
            found[name] = value
    return found


def _with_entry(owner: str, mapping: Any, path: list[str], value: Any) -> dict[str, Any]:  # noqa: ANN401
    key, rest = path[0], path[1:]
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"--set: {owner} holds {mapping!r} and no entries.")
    # The innermost entry may be new, an option that a class has and the mapping leaves at its default.
    if key not in mapping and (rest or "." not in owner):
        raise ConfigError(f"--set: {owner} has no entry {key!r}.{suggest(key, list(mapping))}")
    inner = _with_entry(f"{owner}.{key}", mapping[key], rest, value) if rest else value
    return {**merge_configs(mapping, None), key: inner}
