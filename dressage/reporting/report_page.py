"""Owns the look of the report: one HTML page without a script, an external file or a web font."""

from collections.abc import Iterable, Sequence
from html import escape

STYLE = """
:root { --ink: #1c2833; --soft: #5d6d7a; --line: #e3e8ec; --wash: #f6f8f9; --accent: #0072b2; --good: #00795a;
  --warn: #b35900; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--wash); color: var(--ink);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 40px 24px 64px; }
header { display: flex; flex-wrap: wrap; align-items: baseline; gap: 4px 14px; }
h1 { margin: 0; font-size: 27px; letter-spacing: -0.01em; }
h2 { margin: 0 0 14px; font-size: 16px; }
.badge { padding: 2px 10px; border-radius: 99px; font-size: 12.5px; font-weight: 600; color: #fff;
  background: var(--good); }
.badge.interrupted { background: var(--warn); }
.lead { width: 100%; margin: 0; color: var(--soft); }
section { margin-top: 22px; padding: 22px 24px; background: #fff; border: 1px solid var(--line);
  border-radius: 10px; }
.headline { display: flex; flex-wrap: wrap; align-items: center; gap: 20px 44px; }
.result { font-size: 52px; font-weight: 700; line-height: 1.05; letter-spacing: -0.02em; color: var(--accent);
  font-variant-numeric: tabular-nums; }
.result small { font-size: 23px; font-weight: 500; color: var(--soft); }
.headline > div { max-width: 430px; }
.headline p { margin: 6px 0 0; color: var(--soft); }
.tiles { display: grid; flex: 1; grid-template-columns: repeat(auto-fit, minmax(132px, 1fr)); gap: 14px 18px;
  min-width: 280px; margin: 0; }
.tiles dt { font-size: 12.5px; color: var(--soft); }
.tiles dd { margin: 0; font-size: 18px; font-weight: 600; font-variant-numeric: tabular-nums; }
.pictures { display: grid; grid-template-columns: 2fr 1fr; gap: 28px; align-items: start; }
.pictures.single { grid-template-columns: 1fr; }
figure { margin: 0; }
figure img, .diagnostics img { display: block; width: 100%; height: auto; }
.film img { border: 1px solid var(--line); border-radius: 8px; }
figcaption, .note { margin-top: 8px; font-size: 13px; color: var(--soft); }
.columns { display: grid; grid-template-columns: 1fr 1fr; gap: 0 22px; }
.scroll { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; font-size: 14px; }
th { padding: 4px 14px 4px 0; text-align: left; font-weight: 600; font-size: 12.5px; color: var(--soft);
  border-bottom: 1px solid var(--line); }
td { padding: 5px 14px 5px 0; vertical-align: top; border-bottom: 1px solid var(--line);
  font-variant-numeric: tabular-nums; }
tr:last-child td { border-bottom: 0; }
.quiet { color: var(--soft); }
code, pre { font: 13px/1.55 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
pre { margin: 0; padding: 14px 16px; overflow-x: auto; background: var(--wash); border-radius: 8px; }
details { margin-top: 14px; }
summary { cursor: pointer; color: var(--accent); }
footer { margin-top: 24px; font-size: 12.5px; color: var(--soft); }
@media (max-width: 760px) { .pictures, .columns { grid-template-columns: 1fr; } .result { font-size: 40px; } }
@media print { body { background: #fff; } section { break-inside: avoid; } }
"""


def page(title: str, body: str) -> str:
    """Return the whole document.

    Args:
        title: The window's title, as plain text.
        body: HTML.
    """
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def section(title: str, content: str) -> str:
    """Return a card with a heading; nothing where there is no content.

    Args:
        title: Plain text; empty for a card without a heading.
        content: HTML.
    """
    heading = f"<h2>{escape(title)}</h2>\n" if title else ""
    return f"<section>\n{heading}{content}\n</section>" if content else ""


def tiles(entries: Iterable[tuple[str, str]]) -> str:
    """Return figures side by side, each with its name, from pairs of plain text."""
    cells = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in entries)
    return f'<dl class="tiles">{cells}</dl>'


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, quiet: Sequence[int] = ()) -> str:
    """Return a table of plain text.

    Args:
        heads: Column heads.
        rows: Cells, row by row.
        quiet: Indices of columns that are shown in a soft colour.
    """
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join(_row(row, quiet) for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def picture(source: str, text: str, caption: str, kind: str = "") -> str:
    """Return a picture with its caption.

    Args:
        source: A data URI.
        text: What it shows, for those who cannot see it.
        caption: Plain text.
        kind: CSS class.
    """
    note = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f'<figure class="{kind}"><img src="{source}" alt="{escape(text)}">{note}</figure>'


def commands(lines: Iterable[tuple[str, str]]) -> str:
    """Return shell commands, each with a comment that says what it is for."""
    shown = (f'<span class="quiet"># {escape(comment)}</span>\n{escape(line)}' for comment, line in lines)
    return f"<pre>{'<br>'.join(shown)}</pre>"


def paragraph(text: str) -> str:
    """Return a remark in a soft colour; nothing for an empty text."""
    return f'<p class="note">{escape(text)}</p>' if text else ""


def _row(cells: Sequence[str], quiet: Sequence[int]) -> str:
    return "<tr>" + "".join(_cell(text, column in quiet) for column, text in enumerate(cells)) + "</tr>"


def _cell(text: str, quiet: bool) -> str:
    return f'<td class="quiet">{escape(text)}</td>' if quiet else f"<td>{escape(text)}</td>"
