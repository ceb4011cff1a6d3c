"""Importing an optional package, with an error that names the extra which brings it."""

import importlib
from types import ModuleType

from dressage.errors import MissingExtraError


def import_extra(module: str, extra: str) -> ModuleType:
    """Import an optional package.

    Args:
        module: Its import name.
        extra: The extra of dressage that installs it.

    Returns:
        The module.

    Raises:
        MissingExtraError: If it, or something that it needs, is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{module.partition('.')[0]} cannot be imported ({error}). "
            f"It comes with an extra: pip install 'dressage[{extra}]'"
        ) from error
