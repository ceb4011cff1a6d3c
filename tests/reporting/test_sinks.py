"""TensorBoard and Weights & Biases get every number of a row; a missing package is named with its extra."""

import sys
import types

import pytest

from dressage.errors import MissingExtraError
from dressage.reporting.sinks import TensorBoard, WeightsAndBiases

ROW = {
    "kind": "eval",
    "updates": 2,
    "steps": 256,
    "time_s": 1.0,
    "steps_per_second": 100.0,
    "eval/return_mean": [1.5, None],
    "eval/returns": [[1.0, 2.0], [3.0, None]],
}


def scalars_in(folder):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    return {
        tag: [(event.step, float(event.tensor_proto.float_val[0])) for event in events.Tensors(tag)]
        for tag in events.Tags()["tensors"]
    }


def test_tensorboard_gets_one_curve_a_seed(tmp_path):
    sink = TensorBoard(tmp_path, (7, 8))
    sink.write(ROW)
    sink.close()
    assert scalars_in(tmp_path) == {
        "steps_per_second": [(256, 100.0)],
        "eval/return_mean/seed-7": [(256, 1.5)],
    }


def test_tensorboard_gets_plain_names_of_one_seed(tmp_path):
    sink = TensorBoard(tmp_path, (0,))
    sink.write(
        {"kind": "train", "updates": 1, "steps": 8, "time_s": 0.1, "train/loss": 2.0, "train/kl": None}
    )
    sink.close()
    assert scalars_in(tmp_path) == {"train/loss": [(8, 2.0)]}


@pytest.mark.parametrize("module", ["tensorboard.summary", "wandb"])
def test_a_missing_package_is_named_with_its_extra(module, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'dressage\[tracking\]'"):
        if module == "wandb":
            WeightsAndBiases("project", tmp_path, {}, (0,))
        else:
            TensorBoard(tmp_path, (0,))


def test_weights_and_biases_goes_on_in_the_same_run(tmp_path, monkeypatch):
    calls = []
    run = types.SimpleNamespace(
        log=lambda values, step: calls.append((values, step)), finish=lambda: calls.append("finish")
    )
    stand_in = types.ModuleType("wandb")
    stand_in.init = lambda **options: calls.append(options) or run
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    sink = WeightsAndBiases("swing", tmp_path / "run-3", {"LR": 0.1}, (7, 8))
    sink.write(ROW)
    sink.close()
    assert calls[0]["id"] == "run-3"
    assert calls[0]["resume"] == "allow"
    assert calls[1:] == [({"steps_per_second": 100.0, "eval/return_mean/seed-7": 1.5}, 256), "finish"]
