"""Folders of classes, tar shards, and images that cannot be read."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lapis.data.images import ArrayImages, spread
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


def write_shard(path: Path, labels: list[int], label_suffix: str = "cls") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for index, label in enumerate(labels):
            text = str(label) if label_suffix == "cls" else f'{{"label": {label}}}'
            for suffix, data in (("png", encode(label)), (label_suffix, text.encode())):
                member = tarfile.TarInfo(f"sample{index:03d}.{suffix}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


def test_folders_named_by_number_are_the_class(tmp_path: Path) -> None:
    write_tree(tmp_path, ["000", "007"])
    images = open_images(tmp_path, "test")
    assert images.labels.tolist() == [0, 0, 7, 7]
    assert len(images.classes) == 8
    assert int(images.read(2)[0, 0, 0]) == 10


def test_named_folders_count_in_sorted_order(tmp_path: Path) -> None:
    write_tree(tmp_path / "train", ["zebra", "ant"])
    images = open_images(tmp_path, "train")
    assert images.classes == ("ant", "zebra")
    assert [int(images.read(index)[0, 0, 0]) for index in range(4)] == [10, 11, 0, 1]


def test_training_images_are_never_taken_from_an_unmarked_folder(tmp_path: Path) -> None:
    write_tree(tmp_path, ["a", "b"])
    with pytest.raises(LapisError, match="no train images"):
        open_images(tmp_path, "train")


@pytest.mark.parametrize("suffix", ["cls", "json"])
def test_shards_hold_the_images_that_were_put_in(tmp_path: Path, suffix: str) -> None:
    write_shard(tmp_path / "train" / "a-000.tar", [3, 1], suffix)
    write_shard(tmp_path / "train" / "a-001.tar", [2], suffix)
    images = open_images(tmp_path, "train")
    assert images.labels.tolist() == [3, 1, 2]
    assert [int(images.read(index)[0, 0, 0]) for index in range(3)] == [3, 1, 2]
    assert images.select(np.array([2, 0])).labels.tolist() == [2, 3]


def test_a_shard_image_without_a_label_is_named(tmp_path: Path) -> None:
    path = tmp_path / "val" / "a.tar"
    path.parent.mkdir()
    with tarfile.open(path, "w") as tar:
        member = tarfile.TarInfo("lonely.png")
        member.size = len(encode(1))
        tar.addfile(member, io.BytesIO(encode(1)))
    with pytest.raises(LapisError, match=r"no label.*lonely"):
        open_images(tmp_path, "test")


@pytest.mark.parametrize("damage", [b"no image at all", encode(1)[:40], b""])
def test_a_damaged_image_is_an_error_with_its_path(tmp_path: Path, damage: bytes) -> None:
    write_tree(tmp_path, ["0"])
    (tmp_path / "0" / "0.png").write_bytes(damage)
    with pytest.raises(UnreadableImageError, match=r"0/0\.png"):
        open_images(tmp_path, "test").read(0)


def test_an_empty_or_missing_folder_says_how_to_get_data(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(LapisError, match=r"cifar-10-binary\.tar\.gz.*LAPIS_DATA"):
            open_images(folder, "test")


def test_a_spread_keeps_all_classes_of_sorted_images() -> None:
    images = ArrayImages(np.zeros((40, 2, 2, 3), np.uint8), np.repeat(np.arange(10), 4), tuple("abcdefghij"))
    assert sorted(spread(images, 10).labels.tolist()) == list(range(10))
    assert spread(images, 99) is images
