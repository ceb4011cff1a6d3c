"""Owns what the operating system tells of this machine's processor."""

from pathlib import Path


def processor_facts() -> dict[str, str]:
    """Return what Linux lists of the first core, such as `model name` and `flags`; empty elsewhere."""
    listing = Path("/proc/cpuinfo")
    facts: dict[str, str] = {}
    for line in listing.read_text(encoding="utf-8").splitlines() if listing.is_file() else []:
        key, _, value = line.partition(":")
        facts.setdefault(key.strip(), value.strip())
    return facts
