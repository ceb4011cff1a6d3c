"""Owns the options that a shipped task trains well with; `--no-preset` and `--set` overrule them."""

from collections.abc import Mapping
from typing import Any

PRESETS: Mapping[str, Mapping[str, Any]] = {}


def preset_of(task: str) -> dict[str, Any]:
    """Return the options that differ from the defaults for a task; none for a task without a preset."""
    return dict(PRESETS.get(task, {}))
