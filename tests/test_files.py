"""Writing files: complete or not at all, and no folder left behind."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from lapis._util.files import (
    PARTIAL,
    check_folder,
    check_target,
    csv_text,
    new_folder,
    remove_unfinished,
    write_atomically,
    write_text,
)
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
    check_target(tmp_path / "file.csv", "--csv", "table")
    check_target(None, "--csv", "table")
    with pytest.raises(LapisError, match="there is no folder"):
        check_target(tmp_path / "new" / "file.csv", "--csv", "table")
    with pytest.raises(LapisError, match="choose another --out"):
        check_folder(tmp_path / "file" / "deep", "--out")
    with pytest.raises(LapisError, match="choose another --csv"):
        check_target(tmp_path / "file" / "file.csv", "--csv", "table")
    with pytest.raises(LapisError, match="is a folder"):
        check_target(tmp_path, "--csv", "table")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_or_a_device_is_refused_and_not_replaced_by_a_file(tmp_path: Path) -> None:
    # As /dev/null, which root may replace.
    target = tmp_path / "pipe"
    os.mkfifo(target)
    with pytest.raises(LapisError, match="a device or a pipe"):
        check_target(target, "--csv", "table")
    with pytest.raises(LapisError, match="a device or a pipe"):
        write_text(target, "text")
    assert target.is_fifo()


def test_an_input_is_no_target_by_any_name(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    photo = photos / "photo.csv"
    photo.write_text("a,b\n")
    (tmp_path / "link.csv").symlink_to(photo)
    os.link(photo, tmp_path / "hard.csv")
    names = [photo, tmp_path / "link.csv", tmp_path / "hard.csv", tmp_path / "photos" / ".." / "photos" / "photo.csv"]
    for name in names:
        for source in (photo, photos):
            with pytest.raises(LapisError, match="is an input"):
                check_target(name, "--csv", "table", [None, source], force=True)
    (tmp_path / "other.csv").write_text("a,b\n")
    check_target(tmp_path / "other.csv", "--csv", "table", [photo, photos])
    with pytest.raises(LapisError, match="also an input"):
        check_folder(tmp_path / "photos" / ".", "--out", [photos])


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("table", b"image,rank\n"),
        ("page", b"<!DOCTYPE html><p>"),
        ("packed network", b'\x10\0\0\0\0\0\0\0{"__metadata__":{"lapis_packed":"{}"}}'),
    ],
)
def test_only_a_file_of_the_same_kind_is_replaced_without_force(kind: Any, content: bytes, tmp_path: Path) -> None:
    target = tmp_path / "target.csv"
    for old in (b"", content):
        target.write_bytes(old)
        check_target(target, "--out", kind)
    target.write_bytes(b"\xff\xd8\xff\xe0 a photo, by its first bytes")
    with pytest.raises(LapisError, match="add --force"):
        check_target(target, "--out", kind)
    check_target(target, "--out", kind, force=True)


def test_the_umask_decides_who_may_read_a_new_file(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_text(tmp_path / "private", "text")
    finally:
        os.umask(before)
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o600


def test_a_name_of_255_letters_can_be_written(tmp_path: Path) -> None:
    write_text(tmp_path / ("x" * 255), "text")
    assert (tmp_path / ("x" * 255)).read_text() == "text"


def test_no_cell_of_a_table_is_a_formula() -> None:
    rows = [{"image": "=1+1.png", "score": -0.5}, {"image": "-", "score": 1.0}, {"image": "@SUM(A1)", "score": 0.0}]
    assert csv_text(rows).splitlines()[1:] == ["'=1+1.png,-0.5", "-,1.0", "'@SUM(A1),0.0"]


def test_a_folder_with_the_name_of_an_unfinished_file_stays(tmp_path: Path) -> None:
    (tmp_path / f"{PARTIAL}folder").mkdir()
    (tmp_path / f"{PARTIAL}file").write_text("half")
    remove_unfinished(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [f"{PARTIAL}folder"]
