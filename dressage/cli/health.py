"""Owns what `dressage doctor` looks at: machine, versions, optional packages, compiled programs."""

import os
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dressage.cli.start_up import CACHE_VARIABLE, cache_folder, machine, versions
from dressage.errors import install_command
from dressage.kernels import kernels

EXTRAS = {
    "envs": ("gymnax", "six", "brax", "jaxmarl", "mpe2"),
    "tracking": ("tensorboard", "wandb"),
    "onnx": ("onnx", "onnxruntime"),
    "ray": ("ray",),
    "rsl": ("torch", "tensordict", "rsl_rl"),
}
"""Extra to the modules that it brings."""


def print_health() -> None:
    """Print what was found; what is missing comes with the command that brings it."""
    console = Console()
    _print_pairs(console, "Machine", machine().items())
    _print_pairs(console, "Versions", versions("").items())
    _print_pairs(console, "Compiled programs", _cache())
    _print_pairs(console, "Kernels", _kernels())
    _print_pairs(console, "Extras", ((extra, _extra(extra, modules)) for extra, modules in EXTRAS.items()))


def _print_pairs(console: Console, title: str, pairs: Iterable[tuple[str, str]]) -> None:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for name, text in pairs:
        table.add_row(name, text)
    console.print(f"[bold]{title}[/bold]")
    console.print(table, highlight=False)


def _cache() -> Iterator[tuple[str, str]]:
    folder = cache_folder()
    source = f"from {CACHE_VARIABLE}" if os.environ.get(CACHE_VARIABLE) else f"{CACHE_VARIABLE} changes it"
    yield "folder", escape(f"{folder} ({source})")
    files = [path for path in folder.glob("*") if path.is_file()] if folder.is_dir() else []
    size = sum(path.stat().st_size for path in files)
    yield "kept", f"{len(files):,} files, {size / 1e6:,.1f} MB"
    if not _writable(folder):
        yield "trouble", "[red]the folder cannot be written to, so every start compiles anew[/red]"


def _kernels() -> Iterator[tuple[str, str]]:
    found = kernels()
    state = "[yellow]not used[/yellow]" if found.library is None else "[green]in use[/green]"
    yield "on a CPU", f"{state} ({escape(found.about)})"


def _extra(extra: str, modules: tuple[str, ...]) -> str:
    missing = [module for module in modules if find_spec(module) is None]
    if not missing:
        return f"[green]complete[/green] ({', '.join(modules)})"
    command = escape(install_command(extra))
    return f"[yellow]missing {', '.join(missing)}[/yellow]: {command}"


def _writable(folder: Path) -> bool:
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    return os.access(nearest, os.W_OK)
