"""The example of the page on many agents: it keeps PettingZoo's contract, is shown whole, and learns."""

import importlib.util
import warnings
from pathlib import Path

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PettingZoo 1.27 announces its new interface.
    from pettingzoo.test import parallel_api_test as check_parallel_api

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "own_parallel_env.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("own_parallel_env", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_shows_the_example():
    page, code = (ROOT / "docs" / "many_agents.md").read_text(), EXAMPLE.read_text()
    for section in ("environment", "train", "act"):
        assert f'--8<-- "examples/own_parallel_env.py:{section}"' in page
        assert f"[start:{section}]" in code and f"[end:{section}]" in code


@pytest.mark.filterwarnings("ignore")  # PettingZoo's test warns about everything that it would do otherwise.
def test_the_example_keeps_pettingzoos_contract(example):
    check_parallel_api(example.Handover(), num_cycles=50)


@pytest.mark.slow
def test_the_example_learns_to_catch_every_parcel(example, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    example.main()
    progress, episode, runner = capsys.readouterr().out.splitlines()[:3]
    assert progress.startswith("Progress(updates=50, steps=6400")
    assert "'length': 8" in episode
    assert float(runner) > 7.0  # of 8
    assert (tmp_path / "handover").is_dir()
