"""The page on deployment: every block of code on it runs, in the order in which a reader meets it."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.export.shipped import policy_of, shipped

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(
    r"^```python\n(.*?)^```", (ROOT / "docs" / "deploy.md").read_text(), re.MULTILINE | re.DOTALL
)


def with_sections(block):
    """Put the sections of files in, as the page is built."""

    def section(match):
        text = (ROOT / match[1]).read_text()
        return text.split(f"[start:{match[2]}]\n")[1].split(f"# --8<-- [end:{match[2]}]")[0]

    return re.sub(r'--8<-- "([^:"]+):(\w+)"', section, block)


def test_every_block_of_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    observation = np.zeros(3, np.float32)
    names = {
        "__name__": "page",
        "policy": policy_of("squashed"),
        "observation": observation,
        "recurrent": shipped("recurrent agent").runners["safetensors"],
        "episode": [observation, observation],
    }
    for number, block in enumerate(BLOCKS):
        exec(compile(with_sections(block), f"deploy.md block {number}", "exec"), names)
    np.testing.assert_allclose(names["action"].shape, (2,))
    np.testing.assert_array_equal(
        names["back"].get_action(observation), names["policy"].get_action(observation)
    )
    assert set(names["state"]) == {"state"}
    moves = []
    names["run"]("policy.onnx", lambda: observation, moves.append, steps=1)
    np.testing.assert_allclose(moves[0], names["same"], rtol=1e-5)


def test_the_calls_for_several_agents_exist_as_the_page_names_them(tmp_path):
    from dressage.export import export_policies, load_policies

    result = SimpleNamespace(policies={"left": policy_of("agent")})
    export_policies(result.policies, tmp_path / "robots")
    assert list(load_policies(tmp_path / "robots")) == ["left"]
