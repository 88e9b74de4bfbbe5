"""CIFAR in both official layouts."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lapis.data.cifar import LAYOUTS, find_layout, load_cifar
from lapis.data.images import ArrayImages
from lapis.data.open import open_images
from lapis.errors import LapisError


def write_binary(folder: Path, dataset: str, images: int) -> tuple[np.ndarray, np.ndarray]:
    """Random records in the binary layout; returns the test pixels (n, 3, 32, 32) and labels."""
    layout = LAYOUTS[dataset][0]
    place = folder / layout.folder
    place.mkdir(parents=True)
    generator = np.random.default_rng(5)
    for name in (*layout.train, layout.test):
        labels = generator.integers(0, layout.classes, images, dtype=np.uint8)
        pixels = generator.integers(0, 256, (images, 3072), dtype=np.uint8)
        coarse = np.zeros((images, layout.label_bytes - 1), np.uint8)
        (place / name).write_bytes(np.concatenate([coarse, labels[:, None], pixels], axis=1).tobytes())
    return pixels.reshape(-1, 3, 32, 32), labels


@pytest.mark.parametrize("dataset", ["cifar10", "cifar100"])
def test_binary_records_become_images_with_channels_last(tmp_path: Path, dataset: str) -> None:
    pixels, labels = write_binary(tmp_path, dataset, 7)
    images = open_images(tmp_path, "test", dataset)
    assert isinstance(images, ArrayImages)
    assert (images.pixels == pixels.transpose(0, 2, 3, 1)).all()
    assert (images.labels == labels).all()
    assert len(open_images(tmp_path, "train", dataset)) == 7 * len(LAYOUTS[dataset][0].train)


@pytest.mark.parametrize("dataset", ["cifar10", "cifar100"])
def test_python_layout_holds_the_same_images_as_binary(tmp_path: Path, dataset: str) -> None:
    pixels, labels = write_binary(tmp_path / "binary", dataset, 5)
    layout = LAYOUTS[dataset][1]
    place = tmp_path / layout.folder
    place.mkdir()
    table = {b"data": pixels.reshape(-1, 3072), layout.label_key: labels.tolist()}
    for name in (*layout.train, layout.test):
        (place / name).write_bytes(pickle.dumps(table, protocol=2))
    names = [f"class{index}".encode() for index in range(layout.classes)]
    (place / layout.names).write_bytes(pickle.dumps({layout.names_key: names}, protocol=2))
    found = open_images(place, "test")
    expected = open_images(tmp_path / "binary", "test")
    assert isinstance(found, ArrayImages)
    assert isinstance(expected, ArrayImages)
    assert (found.pixels == expected.pixels).all()
    assert (found.labels == expected.labels).all()
    assert found.classes[3] == "class3"


def test_a_batch_cut_short_is_refused_by_name(tmp_path: Path) -> None:
    write_binary(tmp_path, "cifar10", 3)
    file = tmp_path / "cifar-10-batches-bin" / "test_batch.bin"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(LapisError, match=r"test_batch\.bin.*cut short"):
        open_images(tmp_path, "test")


def test_a_pickle_that_would_run_code_is_refused(tmp_path: Path) -> None:
    class Attack:
        def __reduce__(self) -> tuple[Callable[..., None], tuple[Path]]:
            return (Path.touch, (tmp_path / "ran",))

    place = tmp_path / "cifar-10-batches-py"
    place.mkdir()
    (place / "test_batch").write_bytes(pickle.dumps(Attack()))
    with pytest.raises(LapisError, match="not a CIFAR batch"):
        open_images(tmp_path, "test")
    assert not (tmp_path / "ran").exists()


def test_a_label_outside_the_classes_is_refused(tmp_path: Path) -> None:
    write_binary(tmp_path, "cifar10", 1)
    file = tmp_path / "cifar-10-batches-bin" / "test_batch.bin"
    file.write_bytes(bytes([10]) + file.read_bytes()[1:])
    with pytest.raises(LapisError, match=r"label 10; labels lie in 0\.\.9"):
        open_images(tmp_path, "test")


def test_a_missing_training_batch_is_named(tmp_path: Path) -> None:
    write_binary(tmp_path, "cifar10", 1)
    (tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin").unlink()
    with pytest.raises(LapisError, match=r"data_batch_3\.bin"):
        open_images(tmp_path, "train")


def test_one_dataset_is_not_taken_for_the_other(tmp_path: Path) -> None:
    write_binary(tmp_path, "cifar10", 1)
    assert find_layout(tmp_path, "cifar100") is None
    found = find_layout(tmp_path, "cifar10")
    assert found is not None
    assert len(load_cifar(*found, "test")) == 1


PIXELS = np.zeros((2, 3072), np.uint8)


@pytest.mark.parametrize(
    "table",
    [
        {b"data": PIXELS, b"labels": ["a", "b"]},
        {b"data": PIXELS, b"labels": [1, -1]},
        {b"data": PIXELS, b"labels": [1, 2.5]},
        {b"data": PIXELS, b"labels": [[1], [2, 3]]},
        {b"data": PIXELS, b"labels": [10**30, 1]},
        {b"data": PIXELS[:0], b"labels": []},
        {b"data": np.array(7, np.uint8), b"labels": [1]},
    ],
)
def test_a_batch_of_odd_labels_is_one_error(tmp_path: Path, table: dict[bytes, object]) -> None:
    place = tmp_path / "cifar-10-batches-py"
    place.mkdir()
    (place / "test_batch").write_bytes(pickle.dumps(table, protocol=2))
    with pytest.raises(LapisError, match="is not a CIFAR batch"):
        open_images(tmp_path, "test")


@pytest.mark.parametrize("names", [7, [1, 2], {b"a": b"b"}])
def test_class_names_that_are_no_text_are_one_error(tmp_path: Path, names: object) -> None:
    place = tmp_path / "cifar-10-batches-py"
    place.mkdir()
    (place / "test_batch").write_bytes(pickle.dumps({b"data": PIXELS, b"labels": [0, 1]}, protocol=2))
    (place / "batches.meta").write_bytes(pickle.dumps({b"label_names": names}, protocol=2))
    with pytest.raises(LapisError, match="no list of class names"):
        open_images(tmp_path, "test")
