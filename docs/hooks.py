"""What the documentation builds from the code: option tables, the command line's help and equations.

Each is read from the one place where it is declared, so that no page can go stale.
"""

import importlib
import re
from html import unescape
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

from dressage.config import Option

# <!-- options: dressage.ppo.OPTIONS -->  and  <!-- help: dressage.cli.main.app -->
_OPTIONS = re.compile(r"<!-- options: (?P<path>[\w.]+) -->")
_HELP = re.compile(r"<!-- help: (?P<path>[\w.]+) -->")
# A named function before its argument: MathML sets no space there, print does.
_FUNCTION = re.compile(r"(<mi>(?:log|exp|ln|sin|cos|tanh)</mi>)(?!<mo|</)")
_MATHEMATICS = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\(?P<open>[(\[])(?P<tex>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace the markers of a page by tables of what the code declares."""
    with_tables = _OPTIONS.sub(lambda match: option_table(_named(match["path"])), markdown)
    return _HELP.sub(lambda match: command_help(_named(match["path"])), with_tables)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn the page's LaTeX into MathML, which browsers draw by themselves."""
    return _MATHEMATICS.sub(_mathml, html)


def option_table(options: tuple[Option, ...]) -> str:
    """Write a table of declared options: name, default, meaning, legal values and unit."""
    head = ["Option", "Default", "What it does", "Legal values (unit)"]
    return _table(head, [_option_row(option) for option in options])


def command_help(app: Any) -> str:  # noqa: ANN401 (a Typer application, whose modules the site need not import)
    """Write one section for each verb of the command line, from its own help."""
    main = importlib.import_module("typer.main").get_command(app)
    return "\n\n".join(_verb_section(name, verb) for name, verb in main.commands.items())


def _named(path: str) -> Any:  # noqa: ANN401 (a page may name anything)
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _option_row(option: Option) -> list[str]:
    name = f"`{option.name}`{{ #{option.name} }}"  # the braces give it an anchor
    unit = f" ({option.unit})" if option.unit else ""
    legal = option.allowed().replace(">=", "≥").replace("<=", "≤")
    return [name, f"`{option.default!r}`", option.help, legal + unit]


def _verb_section(name: str, verb: Any) -> str:  # noqa: ANN401
    arguments = [parameter for parameter in verb.params if parameter.param_type_name == "argument"]
    options = [p for p in verb.params if p.param_type_name == "option" and not p.hidden]
    words = [f"$ dressage {name}", *map(_value_name, arguments), "[OPTIONS]" if options else ""]
    rows = [[f"`{_value_name(argument)}`", argument.help or ""] for argument in arguments]
    rows += [[_option_names(option), option.help or ""] for option in options]
    section = f"## {name}\n\n```console\n{' '.join(words).strip()}\n```\n\n{verb.help or ''}"
    return f"{section}\n\n{_table(['Argument', 'Meaning'], rows)}" if rows else section


def _table(head: list[str], rows: list[list[str]]) -> str:
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *escaped])


def _option_names(option: Any) -> str:  # noqa: ANN401
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    return names if option.is_flag else f"{names} `{_value_name(option)}`"


def _value_name(parameter: Any) -> str:  # noqa: ANN401
    return str(parameter.metavar or parameter.name.upper())


def _mathml(match: re.Match[str]) -> str:
    display = "block" if match["open"] == "[" else "inline"
    mathml = convert(unescape(match["tex"]).strip(), display=display)
    mathml = _FUNCTION.sub(r'\1<mspace width="0.17em" />', mathml)
    return f'<div class="equation">{mathml}</div>' if display == "block" else mathml
