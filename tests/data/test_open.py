"""Folders of classes, and images that cannot be read."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lapis.data.image_sources import find_sources
from lapis.data.images import ArrayImages, set_aside, spread
from lapis.data.open import open_images
from lapis.errors import LapisError
from lapis.preprocess import UnreadableImageError


def encode(colour: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.full((5, 7, 3), colour, np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def write_tree(folder: Path, names: list[str]) -> None:
    for colour, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        for copy in range(2):
            (folder / name / f"{copy}.png").write_bytes(encode(10 * colour + copy))


def test_folders_named_by_number_are_the_class(tmp_path: Path) -> None:
    write_tree(tmp_path, ["000", "007"])
    images = open_images(tmp_path, "test")
    assert images.labels.tolist() == [0, 0, 7, 7]
    assert len(images.classes) == 8
    assert int(images[2][0, 0, 0]) == 10


def test_named_folders_count_in_sorted_order(tmp_path: Path) -> None:
    write_tree(tmp_path / "train", ["zebra", "ant"])
    images = open_images(tmp_path, "train")
    assert images.classes == ("ant", "zebra")
    assert [int(images[index][0, 0, 0]) for index in range(4)] == [10, 11, 0, 1]


def test_training_images_are_never_taken_from_an_unmarked_folder(tmp_path: Path) -> None:
    write_tree(tmp_path, ["a", "b"])
    with pytest.raises(LapisError, match="no train images"):
        open_images(tmp_path, "train")


@pytest.mark.parametrize("damage", [b"no image at all", encode(1)[:40], b""])
def test_a_damaged_image_is_an_error_with_its_path(tmp_path: Path, damage: bytes) -> None:
    write_tree(tmp_path, ["0"])
    (tmp_path / "0" / "0.png").write_bytes(damage)
    with pytest.raises(UnreadableImageError, match=r"0/0\.png"):
        open_images(tmp_path, "test")[0]


def test_an_empty_or_missing_folder_says_how_to_get_data(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(LapisError, match=r"cifar-10-binary\.tar\.gz.*LAPIS_DATA"):
            open_images(folder, "test")


def test_a_spread_keeps_all_classes_of_sorted_images() -> None:
    images = ArrayImages(np.zeros((40, 2, 2, 3), np.uint8), np.repeat(np.arange(10), 4), tuple("abcdefghij"))
    assert sorted(spread(images, 10).labels.tolist()) == list(range(10))
    assert spread(images, 99) is images


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_among_images_is_an_error_and_not_a_wait(tmp_path: Path) -> None:
    write_tree(tmp_path, ["0"])
    os.mkfifo(tmp_path / "0" / "2.png")
    images = open_images(tmp_path, "test")
    with pytest.raises(UnreadableImageError, match="not a file"):
        images[2]
    *good, bad = find_sources([str(tmp_path)])
    assert [picture.read().shape for picture in good] == [(5, 7, 3)] * 2
    with pytest.raises(UnreadableImageError, match="not a file"):
        bad.read()


@pytest.mark.parametrize("number", ["131072", "9" * 18, "9" * 200])
def test_a_folder_named_by_an_absurd_number_is_refused_before_classes_are_counted(tmp_path: Path, number: str) -> None:
    write_tree(tmp_path, ["0", number])
    with pytest.raises(LapisError, match=f"class number {number}; networks have at most 131072 classes"):
        open_images(tmp_path, "test")


def test_two_folders_of_one_number_are_refused(tmp_path: Path) -> None:
    write_tree(tmp_path, ["1", "01", "2"])
    with pytest.raises(LapisError, match="01 and 1, which are one number"):
        open_images(tmp_path, "test")


def test_images_set_aside_are_fixed_disjoint_complete_and_of_every_class() -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 50))
    pixels = np.arange(500).astype(">u2").view(np.uint8).reshape(500, 1, 2, 1).repeat(3, axis=3)
    train, held = set_aside(ArrayImages(pixels, labels, tuple("abcdefghij")), 50)
    assert np.bincount(held.labels).tolist() == [5] * 10
    numbers = [
        [int.from_bytes(part[at][0, :, 0].tobytes(), "big") for at in range(len(part))] for part in (train, held)
    ]
    assert sorted(numbers[0] + numbers[1]) == list(range(500))
    # Every tenth of a class, in the order of the files.
    assert numbers[1] == sorted(int(at) for label in range(10) for at in np.flatnonzero(labels == label)[::10])


@pytest.mark.parametrize("count", [500, 5000])
def test_too_many_images_are_not_set_aside(count: int) -> None:
    images = ArrayImages(np.zeros((500, 1, 1, 3), np.uint8), np.zeros(500, np.int64), ("one",))
    with pytest.raises(LapisError, match=f"data.validate={count} images cannot be set aside of 500; use fewer, or 0"):
        set_aside(images, count)
