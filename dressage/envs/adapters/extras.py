"""Importing an optional package, with an error that names the extra which brings it."""

import importlib
import io
from contextlib import redirect_stdout
from types import ModuleType

from dressage.errors import MissingExtraError, install_command


def import_extra(module: str, extra: str) -> ModuleType:
    """Import an optional package, without what it prints.

    Args:
        module: Its import name.
        extra: The extra of dressage that installs it.

    Returns:
        The module.

    Raises:
        MissingExtraError: If it, or something that it needs, is not installed.
    """
    try:
        # Some packages print while they are imported, of other packages that they could use besides.
        with redirect_stdout(io.StringIO()):
            return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{module.partition('.')[0]} cannot be imported ({error}). "
            f"It comes with an extra: {install_command(extra)}"
        ) from error
