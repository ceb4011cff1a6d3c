"""What `dressage inspect` prints of a policy's card."""

import pytest

from dressage.cli.card_pages import print_card
from dressage.export import Card


@pytest.mark.parametrize(("agent", "shown"), [("left", True), ("agent", False), (None, False)])
def test_an_agent_is_named_unless_it_is_the_only_one(agent, shown, tmp_path, capsys):
    file = tmp_path / "policy.onnx"
    file.write_bytes(b"123")
    description = {
        "card": Card(agent=agent).to_json(),
        "dressage": "1",
        "format": 1,
        "weights_sha256": "0",
        "graph": {"states": [], "inputs": [], "outputs": []},
    }
    print_card([file], description)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert (["agent", agent] in lines) == shown
    assert ["size", "3", "bytes"] in lines
