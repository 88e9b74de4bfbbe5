"""Writing files: complete or not at all, and no folder left behind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import pytest

from lapis._util.files import check_folder, check_target, new_folder, write_atomically, write_text
from lapis.errors import LapisError


def _fail(file: BinaryIO) -> None:
    file.write(b"half")
    raise RuntimeError("in the middle")


def test_a_write_that_fails_leaves_neither_file_nor_folder(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="in the middle"):
        write_atomically(tmp_path / "new" / "deep" / "file", _fail)
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_keeps_the_old_file_and_what_lies_beside_it(tmp_path: Path) -> None:
    write_text(tmp_path / "file", "old")
    with pytest.raises(RuntimeError, match="in the middle"):
        write_atomically(tmp_path / "file", _fail)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "old"


def test_a_folder_in_the_way_is_an_error_and_stays(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(LapisError, match="cannot write"):
        write_text(tmp_path / "taken", "text")
    assert [path.name for path in tmp_path.rglob("*")] == ["taken"]


def test_only_new_and_empty_folders_are_removed(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    with pytest.raises(RuntimeError), new_folder(tmp_path / "old" / "new" / "newer"):
        raise RuntimeError
    assert [path.name for path in tmp_path.rglob("*")] == ["old"]


def test_a_new_folder_that_holds_something_stays(tmp_path: Path) -> None:
    def fill_and_fail() -> None:
        with new_folder(tmp_path / "new"):
            (tmp_path / "new" / "kept").write_text("")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fill_and_fail()
    assert (tmp_path / "new" / "kept").exists()


def test_checking_makes_nothing_and_refuses_what_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    check_folder(tmp_path / "new" / "deep", "--out")
    check_target(tmp_path / "new" / "file.csv", "--csv")
    check_target(None, "--csv")
    with pytest.raises(LapisError, match="choose another --out"):
        check_folder(tmp_path / "file" / "deep", "--out")
    with pytest.raises(LapisError, match="choose another --csv"):
        check_target(tmp_path / "file" / "file.csv", "--csv")
    with pytest.raises(LapisError, match="is a folder"):
        check_target(tmp_path, "--csv")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_or_a_device_is_refused_and_not_replaced_by_a_file(tmp_path: Path) -> None:
    # As /dev/null, which root may replace.
    target = tmp_path / "pipe"
    os.mkfifo(target)
    with pytest.raises(LapisError, match="a device or a pipe"):
        check_target(target, "--csv")
    with pytest.raises(LapisError, match="a device or a pipe"):
        write_text(target, "text")
    assert target.is_fifo()
