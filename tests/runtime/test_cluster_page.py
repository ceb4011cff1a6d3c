"""The example of the page on clusters runs as the page says, and the page's tables name what exists."""

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("rsl_rl")

from dressage.runtime import OPTIONS, Counters
from dressage.runtime.accounts import STAGES
from examples import cluster

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8")


def test_the_example_trains_and_goes_on_from_its_checkpoint(tmp_path, capsys):
    cluster.main(["--updates", "10", "--folder", str(tmp_path)])
    told = capsys.readouterr().out
    assert "exact resume: yes" in told
    assert (
        "    9 updates, return  -1" in told
    )  # 200 steps take 9 fragments of 24; untrained it is under -1000
    cluster.main(["--updates", "11", "--folder", str(tmp_path), "--resume"])
    told = capsys.readouterr().out
    assert "going on from update 10" in told
    assert told.endswith(f"11 updates, {11 * 64 * 24:,} steps, exact resume: yes\n")


def test_the_page_shows_both_parts_of_the_example():
    text = (ROOT / "examples" / "cluster.py").read_text(encoding="utf-8")
    for name in ("parts", "run"):
        assert f'--8<-- "examples/cluster.py:{name}"' in PAGE
        assert f"[start:{name}]" in text and f"[end:{name}]" in text


def test_the_page_explains_every_option_with_its_default():
    for option in OPTIONS:
        row = re.search(rf"^\| `{option.name}` \| (.+?) \|", PAGE, re.MULTILINE)
        assert row is not None, option.name
        assert row.group(1) == ("none" if option.default is None else f"{option.default}").removesuffix(".0")


def test_the_page_explains_every_counter_and_every_stage():
    names = [f"`runtime/{name}`" for name in vars(Counters())] + [f"`time/{name}_s`" for name in STAGES]
    assert [name for name in names if name not in PAGE] == []
