"""The page on shields: its code runs and does what the page says; its table is what the example finds."""

import re
from pathlib import Path

import numpy as np
import pytest

from dressage.envs import tasks
from examples.shield_gains import scan

PAGE = Path(__file__).parents[2] / "docs" / "shields.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def test_every_block_of_the_page_runs_and_does_what_it_says(capsys):
    names = {"__name__": "page"}
    for number, block in enumerate(BLOCKS):
        exec(compile(block, f"{PAGE.name} block {number}", "exec"), names)
    space = names["env"].action_space(names["state"], "agent_0")
    assert (space["action"].n, space["shield"].shape) == (9, (1,))
    np.testing.assert_allclose(names["decision"].action, [1.4], atol=1e-5)
    assert names["intervened"].mean() > 0.5
    assert re.search(r"\[1\.4", capsys.readouterr().out)


def test_the_page_names_the_shielded_tasks():
    listed = {name for name in tasks() if name.startswith("shielded_")}
    assert listed == set(re.findall(r"^\| `(shielded_\w+)` \|", TEXT, re.MULTILINE))


@pytest.mark.slow
def test_a_tuned_gain_crosses_better_than_the_default_and_no_gain_collides():
    rows = re.findall(r"^\| (\d\d?\.\d\d)[^|]*\| (-\d\.\d\d) \| 0 \| (\d+) % \|$", TEXT, re.MULTILINE)
    gains, returns, shares = np.array(rows, float).T
    found, collisions, interventions = scan(tuple(gains), copies=128)
    assert collisions.sum() == 0
    np.testing.assert_allclose(found, returns, atol=0.05)
    np.testing.assert_allclose(100 * interventions, shares, atol=2)
    default = found[gains == 0.69].item()
    assert found.max() > default + 2 > found[0] + 4
