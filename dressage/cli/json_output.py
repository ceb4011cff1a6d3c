"""Owns how a verb prints JSON for programs."""

import json
from typing import Any

from rich.console import Console

from dressage.reporting.metric_rows import jsonable


def print_as_json(content: Any) -> None:  # noqa: ANN401 (any tree of numbers, texts and arrays)
    """Print one strictly valid JSON value, with `null` for what is not finite."""
    text = json.dumps(jsonable(content), indent=2, allow_nan=False)
    Console().print(text, markup=False, highlight=False, soft_wrap=True)
