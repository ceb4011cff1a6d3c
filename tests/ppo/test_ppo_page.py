"""The page on PPO: every block of code on it runs, in the order in which a reader meets it."""

import re
from pathlib import Path

import jax
import numpy as np
import pytest

from dressage.errors import ConfigError
from dressage.learning.records import FAULT_FIELDS
from dressage.ppo import fault_field

PAGE = Path(__file__).parents[2] / "docs" / "ppo.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def shortened(block):
    """Train for a moment where the page trains in earnest."""
    return re.sub(r"TOTAL_TIMESTEPS=[\d_]+", "TOTAL_TIMESTEPS=4000", block)


@pytest.mark.slow
def test_every_block_of_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    for number, block in enumerate(BLOCKS):
        exec(compile(shortened(block), f"{PAGE.name} block {number}", "exec"), names)
    jax.effects_barrier()
    assert (tmp_path / "pendulum_policy" / "policy.safetensors").exists()
    assert names["returns"].shape == (3, 2)
    assert names["scores"]["eval/returns"].shape == (2, 20)
    assert np.isfinite(names["estimate"])
    output = capsys.readouterr().out
    assert re.search(r"steps      2,000 \| kl .* \| return -\d+.* \(20 episodes\)", output)
    assert re.search(r"4000 steps: upright \d+% of the time", output)


def test_the_pages_table_of_faults_is_that_of_the_code():
    rows = re.findall(r"^\| (\d) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    assert [int(code) for code, _ in rows] == list(range(1 + len(FAULT_FIELDS)))
    assert [fault_field(int(code)) or "nothing" for code, _ in rows] == [words for _, words in rows]
    assert rows[3] == ("3", "reward")


@pytest.mark.parametrize("code", [-1, 7])
def test_a_code_that_does_not_exist_is_refused(code):
    with pytest.raises(ConfigError, match=rf"in \[0, 6\], got {code}"):
        fault_field(code)


def test_the_page_shows_code_for_each_way_of_use():
    shown = "\n".join(BLOCKS)
    for call in (
        "jax.jit(train, static_argnums=0",
        "jax.vmap(",
        "EVAL_METRICS_HOST_CB",
        "Policy.load(",
        "make_trainer(",
    ):
        assert call in shown
