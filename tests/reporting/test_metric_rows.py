"""Rows of metrics.jsonl: strictly valid JSON, one number a seed, unfinished episodes left out."""

import json
import math

import numpy as np
import pytest

from dressage.errors import CheckpointError
from dressage.reporting.metric_rows import (
    encode,
    episode_returns,
    eval_row,
    keep_until,
    of_kind,
    read_rows,
    seed_values,
    train_row,
)
from dressage.reporting.sinks import JsonLines

PROGRESS = {"updates": 3, "steps": 384, "time_s": 1.23456, "steps_per_second": 1000.04}


def refuse_constant(name):
    raise ValueError(f"{name} is no JSON")


def test_a_row_of_one_seed_holds_plain_numbers_behind_its_place():
    row = train_row(PROGRESS, {"train/loss": np.array([0.5], np.float32)})
    assert row == {
        "kind": "train",
        "updates": 3,
        "steps": 384,
        "time_s": 1.235,
        "steps_per_second": 1000.0,
        "train/loss": 0.5,
    }


def test_a_row_of_several_seeds_holds_one_number_a_seed():
    row = train_row(PROGRESS, {"train/loss": np.array([0.5, 0.25])})
    assert row["train/loss"] == [0.5, 0.25]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_becomes_null(value):
    line = encode(train_row(PROGRESS, {"train/episode_return": np.array([value])}))
    assert json.loads(line, parse_constant=refuse_constant)["train/episode_return"] is None


def test_unfinished_evaluation_episodes_are_left_out_and_counted():
    metrics = {
        "eval/returns": np.array([[10.0, 20.0, 999.0, 0.0]]),
        "eval/lengths": np.array([[5, 7, 9, 9]]),
        "eval/finished": np.array([[True, True, False, False]]),
    }
    row = eval_row(PROGRESS, metrics)
    assert row["eval/return_mean"] == 15.0
    assert row["eval/return_std"] == 5.0
    assert row["eval/length_mean"] == 6.0
    assert (row["eval/episodes"], row["eval/unfinished"]) == (2, 2)
    assert row["eval/returns"] == [10.0, 20.0, None, None]


def test_an_evaluation_in_which_nothing_finished_has_no_mean():
    metrics = {
        "eval/returns": np.zeros((2, 3)),
        "eval/lengths": np.zeros((2, 3), int),
        "eval/finished": np.array([[False] * 3, [True, False, False]]),
    }
    row = json.loads(encode(eval_row(PROGRESS, metrics)), parse_constant=refuse_constant)
    assert row["eval/return_mean"] == [None, 0.0]
    assert row["eval/unfinished"] == [3, 2]


def test_values_read_back_have_one_entry_a_seed_and_nan_for_null():
    np.testing.assert_array_equal(seed_values({"x": 2.0}, "x"), [2.0])
    np.testing.assert_array_equal(seed_values({"x": [1.0, None]}, "x"), [1.0, math.nan])
    np.testing.assert_array_equal(seed_values({}, "x"), [math.nan])
    np.testing.assert_array_equal(episode_returns({"eval/returns": [1.0, None]}), [[1.0, math.nan]])


def test_a_written_row_is_on_disk_before_the_file_is_closed(tmp_path):
    path = tmp_path / "metrics.jsonl"
    sink = JsonLines(path)
    sink.write(train_row(PROGRESS, {}))
    assert [row["updates"] for row in read_rows(path)] == [3]
    sink.close()


def test_rows_after_the_checkpoint_and_half_a_line_are_cut_off(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = [
        encode({**PROGRESS, "kind": kind, "updates": n, "eval/returns": [1.0]})
        for n, kind in [(1, "train"), (1, "event"), (2, "train"), (2, "eval"), (2, "event"), (3, "train")]
    ]
    path.write_text("\n".join([*lines, '{"kind": "tra']), encoding="utf-8")
    assert [row["updates"] for row in keep_until(path, 2)] == [1, 1, 2, 2]
    assert [row["kind"] for row in read_rows(path)] == ["train", "event", "train", "eval"]
    assert [row["updates"] for row in of_kind(read_rows(path), "eval")] == [2]


@pytest.mark.parametrize(
    ("line", "flaw"),
    [
        (b'{"kind": "train", ', "Expecting property name"),
        (b"\xff\xfe", "invalid start byte"),
        (b"[1, 2]", "it is no JSON object"),
        (b'{"kind": "train", "updates": 2}', "it has no steps"),
        (
            b'{"kind": "eval", "updates": 2, "steps": 2, "time_s": 1, "steps_per_second": 1}',
            "no eval/returns",
        ),
        (b'{"kind": "x", "updates": 2, "steps": 2, "time_s": 1, "steps_per_second": 1}', "its kind is 'x'"),
        (
            b'{"kind": "train", "updates": 2, "steps": "", "time_s": 1, "steps_per_second": 1}',
            "steps is no num",
        ),
    ],
)
def test_a_damaged_line_is_named_and_stays_in_the_file(line, flaw, tmp_path):
    path = tmp_path / "metrics.jsonl"
    sound = encode(train_row(PROGRESS, {})).encode()
    path.write_bytes(b"\n".join([sound, line, sound, b""]))
    before = path.read_bytes()
    for read in (read_rows, lambda path: keep_until(path, 9)):
        with pytest.raises(CheckpointError, match=rf"metrics\.jsonl is damaged: line 2 is no row .*{flaw}"):
            read(path)
    assert path.read_bytes() == before


def test_a_run_without_metrics_has_no_rows(tmp_path):
    assert read_rows(tmp_path / "metrics.jsonl") == []
    assert keep_until(tmp_path / "metrics.jsonl", 5) == []
