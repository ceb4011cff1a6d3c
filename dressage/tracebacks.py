"""Owns telling a user's own lines in a traceback from ours, Python's and those of installed packages."""

import traceback
from pathlib import Path

OWN = Path(__file__).parent
STANDARD = Path(traceback.__file__).parent
INSTALLED = ("site-packages", "dist-packages")


def is_users(frame: traceback.FrameSummary) -> bool:
    """Whether a line is the user's own."""
    path = Path(frame.filename)
    known = frame.filename.startswith("<") or path.is_relative_to(OWN) or path.is_relative_to(STANDARD)
    return not known and not any(part in INSTALLED for part in path.parts)


def place(frame: traceback.FrameSummary) -> str:
    """Return `file:line`, from the current folder where the file lies in it."""
    path = Path(frame.filename)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{shown}:{frame.lineno}"


def told(error: BaseException) -> str:
    """Return type and text of an exception, and the innermost of the user's own lines that led to it."""
    text = f"{type(error).__name__}: {error}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if is_users(frame)]
    return f"{text} ({place(frames[-1])}, in {frames[-1].name})" if frames else text
