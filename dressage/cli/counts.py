"""Owns how large counts are typed: `1000000`, `1_000_000`, `1e6` and `1M` are one number."""

import re
from decimal import Decimal

import typer

COUNT = re.compile(r"(?P<digits>\d[\d_]*(?:\.\d+)?)(?:[eE]\+?(?P<exponent>\d{1,2})|(?P<suffix>[kKMG]))?")
POWERS = {"k": 3, "K": 3, "M": 6, "G": 9}


def read_count(text: str) -> int | None:
    """Return the whole number of at least 0 that a text stands for, exactly; None where it stands for none.

    Args:
        text: Digits, which underscores may part, with an exponent or one of the suffixes k, M and G; 1.5M is
            a whole number, 1.5 is none.
    """
    match = COUNT.fullmatch(text.strip())
    if match is None:
        return None
    power = POWERS[match["suffix"]] if match["suffix"] else int(match["exponent"] or 0)
    number = Decimal(match["digits"].replace("_", "")).scaleb(power)
    return int(number) if number == number.to_integral_value() else None


def positive_count(text: str) -> int:
    """Parse an option that takes a count.

    Raises:
        typer.BadParameter: If the text is no whole number of at least 1.
    """
    number = read_count(str(text))
    if not number:
        raise typer.BadParameter(f"{text!r} is no whole number >= 1, such as 500000, 500_000, 5e5 or 500k.")
    return number
