"""What the documentation takes from the code."""

from typing import Annotated

import typer

from docs.hooks import command_help, on_page_content, option_table
from dressage.config import Option

MATHML = "http://www.w3.org/1998/Math/MathML"


def page_content(html: str) -> str:
    return on_page_content(html, page=None, config=None, files=None)


def test_an_option_becomes_a_row_with_default_meaning_range_and_unit():
    table = option_table((Option("NUM_ENVS", 64, "integer", minimum=1, unit="copies", help="In parallel."),))
    assert table.splitlines() == [
        "| Option | Default | What it does | Legal values (unit) |",
        "| --- | --- | --- | --- |",
        "| `NUM_ENVS`{ #NUM_ENVS } | `64` | In parallel. | an integer ≥ 1 (copies) |",
    ]


def test_a_bar_in_a_text_does_not_cut_its_cell():
    table = option_table((Option("KIND", "a", "choice", choices=("a",), help="a | b"),))
    assert table.splitlines()[2] == r"| `KIND`{ #KIND } | `'a'` | a \| b | one of 'a' |"


def test_every_verb_gets_a_section_with_its_arguments_and_options():
    app = typer.Typer()

    @app.command()
    def train(
        task: Annotated[str, typer.Argument(help="What to learn.")],
        steps: Annotated[int, typer.Option(help="How long.")] = 1,
        film: Annotated[bool, typer.Option(help="Film the end.")] = True,
    ) -> None:
        """Train an agent."""

    @app.command()
    def tasks() -> None:
        """List the tasks."""

    page = command_help(app)
    assert page.startswith("## train\n\n```console\n$ dressage train TASK [OPTIONS]\n```\n\nTrain an agent.")
    assert "| `TASK` | What to learn. |\n| `--steps` `STEPS` | How long. |" in page
    assert "| `--film`, `--no-film` | Film the end. |" in page
    assert page.endswith("## tasks\n\n```console\n$ dressage tasks\n```\n\nList the tasks.")


def test_an_equation_in_a_line_becomes_mathml():
    html = page_content(r'<p>at <span class="arithmatex">\(a &lt; b\)</span></p>')
    equation = "<mrow><mi>a</mi><mo>&#x0003C;</mo><mi>b</mi></mrow>"
    assert html == f'<p>at <math xmlns="{MATHML}" display="inline">{equation}</math></p>'


def test_an_equation_of_its_own_becomes_a_block():
    html = page_content('<div class="arithmatex">\\[\nx\n\\]</div>')
    equation = f'<math xmlns="{MATHML}" display="block"><mrow><mi>x</mi></mrow></math>'
    assert html == f'<div class="equation">{equation}</div>'


def test_a_named_function_keeps_its_distance_from_what_follows():
    assert '<mi>log</mi><mspace width="0.17em" /><mi>x</mi>' in page_content(
        r'<span class="arithmatex">\(\log x\)</span>'
    )
    assert "mspace" not in page_content(r'<span class="arithmatex">\(\log (x)\)</span>')


def test_other_content_is_left_alone():
    html = '<p class="arithmatex">\\(x\\)</p><code>$x$</code>'
    assert page_content(html) == html
