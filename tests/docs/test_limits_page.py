"""The page on limits: its code runs and does what the page says."""

import re
from pathlib import Path

import pytest

from dressage.rl.safety import Verdict

PAGE = Path(__file__).parents[2] / "docs" / "limits.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_every_block_of_the_page_runs_and_the_limit_is_kept(capsys):
    names = {"__name__": "page"}
    for number, block in enumerate(BLOCKS):
        exec(compile(block, f"{PAGE.name} block {number}", "exec"), names)
    assert names["report"].kept
    assert names["report"].agents[0].costs.mean > 2.0
    assert "kept" in capsys.readouterr().out


def test_the_page_explains_every_verdict():
    assert {verdict.value for verdict in Verdict} == set(re.findall(r"^\| `([a-z ]+)` \| the ", TEXT, re.M))
