"""Files appear whole or not at all, whatever fails on the way."""

import errno
import os

import pytest

from dressage.whole_files import whole_file


def test_the_draft_takes_the_files_place(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with whole_file(path) as draft:
        draft.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["file"]


def test_a_full_disk_is_told_of_the_file_and_leaves_no_draft(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    # As the system reports it: without a name.
    with pytest.raises(OSError, match="No space left") as refusal, whole_file(path) as draft:
        draft.write_text("ne")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert refusal.value.filename == str(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_folder_in_the_files_place_is_named_and_leaves_no_draft(tmp_path):
    (tmp_path / "file").mkdir()
    with pytest.raises(IsADirectoryError) as refusal, whole_file(tmp_path / "file") as draft:
        draft.write_text("new")
    assert refusal.value.filename == str(tmp_path / "file")
    assert os.listdir(tmp_path) == ["file"]


def test_whatever_else_fails_leaves_no_draft(tmp_path):
    with pytest.raises(RuntimeError, match="broke"), whole_file(tmp_path / "file") as draft:
        draft.write_text("ne")
        raise RuntimeError("broke")
    assert os.listdir(tmp_path) == []
