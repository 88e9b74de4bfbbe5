"""A person's own folder of images: opened, split the same way every time, and refused with a reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lapis.data.class_folders import HELD_OUT_SHARE, LEAST_IMAGES, open_class_folders, unreadable
from lapis.errors import LapisError


def write(folder: Path, counts: dict[str, int], first: int = 0) -> Path:
    for name, count in counts.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(first, first + count):
            Image.new("RGB", (4, 3), (number, 0, 0)).save(folder / name / f"{number}.png")
    return folder


def test_each_class_holds_out_the_same_share_and_no_image_is_on_both_sides(tmp_path: Path) -> None:
    own = open_class_folders(write(tmp_path, {"dog": 40, "cat": 15, "emu": 4}))
    assert own.split
    assert own.classes == ("cat", "dog", "emu")
    expected = {name: max(1, round(HELD_OUT_SHARE * count)) for name, count in {"cat": 15, "dog": 40, "emu": 4}.items()}
    assert {name: held for name, (_, held) in own.counts().items()} == expected
    assert not set(own.train.paths) & set(own.held_out.paths)
    assert len({*own.train.paths, *own.held_out.paths}) == 59
    for part in (own.train, own.held_out):
        names = [path.parent.name for path in part.paths]
        assert names == [own.classes[label] for label in part.labels]


def test_the_split_is_always_the_same_and_added_images_move_few(tmp_path: Path) -> None:
    own = open_class_folders(write(tmp_path, {"dog": 40, "cat": 40}))
    again = open_class_folders(tmp_path)
    assert (own.train.paths, own.held_out.paths) == (again.train.paths, again.held_out.paths)
    assert own.fingerprint() == again.fingerprint()
    more = open_class_folders(write(tmp_path, {"dog": 5}, first=100))
    assert more.fingerprint() != own.fingerprint()
    # One place more in the held-out part, which an old or a new image takes; five new names push few old ones out.
    assert len(set(own.held_out.paths) - set(more.held_out.paths)) <= 5


def test_a_folder_for_testing_is_used_and_matched_by_name(tmp_path: Path) -> None:
    write(tmp_path / "train", {"b": 5, "a": 6})
    write(tmp_path / "val", {"a": 2, "b": 1})
    own = open_class_folders(tmp_path)
    assert not own.split
    assert own.counts() == {"a": (6, 2), "b": (5, 1)}
    assert [own.classes[label] for label in own.held_out.labels] == ["a", "a", "b"]


def test_training_images_alone_are_split(tmp_path: Path) -> None:
    write(tmp_path / "train", {"b": 5, "a": 6})
    assert open_class_folders(tmp_path).split


def test_folders_named_by_number_are_names_in_the_order_of_the_numbers(tmp_path: Path) -> None:
    own = open_class_folders(write(tmp_path, {"10": 4, "9": 4, "2019": 4}))
    assert own.classes == ("9", "10", "2019")
    assert [path.parent.name for path in own.train.select(np.flatnonzero(own.train.labels == 1)).paths] == ["10"] * 3


def _only(counts: dict[str, int]) -> Callable[[Path], object]:
    return lambda folder: write(folder, counts)


def _with_val(val: dict[str, int]) -> Callable[[Path], object]:
    return lambda folder: (write(folder / "train", {"a": 5, "b": 5}), write(folder / "val", val))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: None, "is not a folder"),
        (lambda folder: folder.mkdir(), "has no folders with images"),
        (lambda folder: write(folder, {"": 3}), "but 3 images that are in no class"),
        (_only({"cat": 9}), "has one class, 'cat'"),
        (_only({"cat": 9, "dog": LEAST_IMAGES - 1}), "'dog' has 3"),
        (lambda folder: (write(folder, {"a": 5, "b": 5}) / "c").mkdir(), "'c' has 0"),
        (_with_val({"a": 2}), "class 'b' is in training but not in"),
        (_with_val({"a": 2, "b": 2, "c": 2}), "class 'c' is in val but not in the training images"),
    ],
)
def test_a_folder_that_cannot_be_learnt_from_is_one_clear_error(
    tmp_path: Path, make: Callable[[Path], object], words: str
) -> None:
    make(tmp_path / "images")
    with pytest.raises(LapisError, match=words):
        open_class_folders(tmp_path / "images")


def test_folders_of_something_else_beside_the_classes_do_not_disturb(tmp_path: Path) -> None:
    write(tmp_path, {"a": 5, "b": 5})
    (tmp_path / ".cache").mkdir()
    (tmp_path / "runs" / "earlier").mkdir(parents=True)
    assert open_class_folders(tmp_path).classes == ("a", "b")


def test_images_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    own = open_class_folders(write(tmp_path, {"a": 5, "b": 5}))
    assert unreadable(own.train) == {}
    own.train.paths[2].write_bytes(b"no image")
    (line,) = unreadable(own.train).values()
    assert str(own.train.paths[2]) in line
