"""Owns how verbs that look at exported policies are told where they are."""

from pathlib import Path
from typing import Annotated

import typer

METAVAR = "POLICIES"
HELP = "An exported policy, the policies.json of several agents, a folder of policies, or a run directory."

PolicyPlace = Annotated[Path, typer.Argument(metavar=METAVAR, help=HELP, show_default=False)]
PolicyPlaces = Annotated[list[Path], typer.Argument(metavar=f"{METAVAR}...", help=HELP, show_default=False)]


def place_of(path: Path) -> Path:
    """Return where the policies are: of a run its policy folder.

    Raises:
        ConfigError: If it is a run that has no policy yet.
    """
    from dressage.cli.measure import check_has_policy
    from dressage.reporting.run_folder import RunFolder

    folder = RunFolder(path)
    if not folder.holds_run():
        return path
    check_has_policy(folder, folder.policy)
    return folder.policy
