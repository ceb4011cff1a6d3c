"""Owns which releases of rsl_rl are known to work."""

from importlib.metadata import version

from dressage.errors import ConfigError

OLDEST = (5, 5)
"""First release series that the tests have run with."""

BEYOND = (5, 6)
"""First release series that they have not."""


def check_release(installed: str | None = None) -> str:
    """Return the installed release of rsl_rl.

    Args:
        installed: A release to check in place of the installed one.

    Raises:
        ConfigError: If it lies outside the tested range.
    """
    release = installed if installed is not None else version("rsl-rl-lib")
    series = tuple(int(part) for part in release.split(".")[:2])
    if not OLDEST <= series < BEYOND:
        low, high = (".".join(map(str, bound)) for bound in (OLDEST, BEYOND))
        raise ConfigError(
            f"rsl-rl-lib {release} is installed, and RSLRLPolicy is tested with {low} up to, but without, "
            f"{high}. Install one of those: pip install 'rsl-rl-lib>={low},<{high}'"
        )
    return release
