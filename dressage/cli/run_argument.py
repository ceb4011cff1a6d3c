"""Owns how verbs that read a run are told which one."""

from pathlib import Path
from typing import Annotated

import typer

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.", show_default=False)]
