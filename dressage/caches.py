"""Owns where files are kept that can be made anew: compiled programs and kernels."""

import os
from pathlib import Path


def user_cache() -> Path:
    """Return dressage's folder in the user's cache: in `XDG_CACHE_HOME`, or in `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dressage"
