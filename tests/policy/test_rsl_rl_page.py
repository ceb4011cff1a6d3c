"""The page on rsl_rl: every block of code on it runs, in the order in which a reader meets it."""

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("rsl_rl")

PAGE = Path(__file__).parents[2] / "docs" / "rsl_rl.md"


def test_every_block_of_the_page_runs(capsys):
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names = {"__name__": "page"}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{PAGE.name} block {number}", "exec"), names)
    assert names["engine"].learner.version == names["updates"] == 5
    output = capsys.readouterr().out
    assert "torch.Size([4, 3])" in output and "{'task': 'pendulum'}" in output
