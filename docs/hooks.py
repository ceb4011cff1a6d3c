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
    """Write a table of declared options: name, default, legal values, unit and meaning."""
    head = "| Option | Default | Legal values | Unit | What it does |\n|---|---|---|---|---|\n"
    return head + "\n".join(_option_row(option) for option in options)


def command_help(app: Any) -> str:  # noqa: ANN401 (a Typer application, whose modules the site need not import)
    """Write one section for each verb of the command line, from its own help."""
    main = importlib.import_module("typer.main").get_command(app)
    verbs = sorted(main.commands.items())
    return "\n\n".join(f"## {name}\n\n{_verb_section(name, verb)}" for name, verb in verbs)


def _named(path: str) -> Any:  # noqa: ANN401 (a page may name anything)
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


def _option_row(option: Option) -> str:
    default = f"`{option.default!r}`"
    cells = (
        f"`{option.name}`{{ #{option.name} }}",
        default,
        option.allowed(),
        option.unit or "",
        option.help,
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _verb_section(name: str, verb: Any) -> str:  # noqa: ANN401
    arguments = [parameter for parameter in verb.params if parameter.param_type_name == "argument"]
    options = [p for p in verb.params if p.param_type_name == "option" and not p.hidden]
    usage = " ".join([f"dressage {name}", *(a.human_readable_name for a in arguments), "[OPTIONS]"])
    rows = [(f"`{argument.human_readable_name}`", argument.help) for argument in arguments]
    rows += [(_option_names(option), option.help) for option in options]
    table = "\n".join(f"| {left} | {right or ''} |" for left, right in rows)
    return f"```console\n$ {usage}\n```\n\n{verb.help or ''}\n\n| Argument | Meaning |\n|---|---|\n{table}"


def _option_names(option: Any) -> str:  # noqa: ANN401
    names = ", ".join(f"`{name}`" for name in option.opts)
    return names if option.is_flag else f"{names} `{option.make_metavar(_context())}`"


def _context() -> Any:  # noqa: ANN401
    click = importlib.import_module("click")
    return click.Context(click.Command("dressage"))


def _mathml(match: re.Match[str]) -> str:
    display = "block" if match["open"] == "[" else "inline"
    mathml = convert(unescape(match["tex"]).strip(), display=display)
    mathml = _FUNCTION.sub(r'\1<mspace width="0.17em" />', mathml)
    return f'<div class="equation">{mathml}</div>' if display == "block" else mathml
