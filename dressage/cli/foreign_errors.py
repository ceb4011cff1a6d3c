"""Owns how an exception from code that is not ours is told: what failed, in the user's own lines."""

import traceback
from collections.abc import Iterator
from itertools import dropwhile
from pathlib import Path

from dressage.tracebacks import INSTALLED, OWN, is_users, place

ENTRY = OWN / "cli" / "main.py"

MACHINERY = frozenset(
    {"click", "flax", "gymnasium", "jax", "jaxlib", "numpy", "optax", "orbax", "pettingzoo", "rich", "typer"}
)
"""Packages that stand between us and an environment; a line of theirs tells its author nothing."""


def explain(error: BaseException) -> str | None:
    """Say what failed and where, with the lines of the user's code that led there, outermost first.

    Lines of an installed package are shown where no line of the user's own is among them.

    Args:
        error: An exception that was caught.

    Returns:
        Several lines of text; None where no code but ours and our machinery's is involved.
    """
    for cause in _chain(error):
        frames = list(dropwhile(_is_before_verb, traceback.extract_tb(cause.__traceback__)))
        shown = [frame for frame in frames if is_users(frame)] or [f for f in frames if _is_foreign(f)]
        if shown:
            return _described(cause, shown)
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)


def _described(error: BaseException, frames: list[traceback.FrameSummary]) -> str:
    first, *rest = str(error).strip().splitlines() or ["no message"]
    last = frames[-1]
    lines = [f"{type(error).__name__} in {last.name}, {place(last)}: {first}"]
    for frame in frames:
        lines += [f"  {place(frame)}, in {frame.name}", f"    {frame.line}"]
    return "\n".join([*lines, *(f"  {line}" for line in rest)])


def _is_before_verb(frame: traceback.FrameSummary) -> bool:
    # Up to there only the parser of the command line is at work.
    path = Path(frame.filename)
    return path == ENTRY or not path.is_relative_to(OWN)


def _is_foreign(frame: traceback.FrameSummary) -> bool:
    parts = Path(frame.filename).parts
    places = [index for index, part in enumerate(parts) if part in INSTALLED]
    return bool(places) and parts[places[-1] + 1].removesuffix(".py") not in MACHINERY
