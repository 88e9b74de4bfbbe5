"""Batches depend on seed, epoch and step alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import Image

from lapis.data import loader
from lapis.data.class_folders import load_folder
from lapis.data.images import ArrayImages
from lapis.data.loader import Augment, Batch, TestBatches, TrainBatches
from lapis.errors import LapisError
from lapis.nn.pixels import normalise
from lapis.preprocess import Preprocess

EVERYTHING = Augment(operations=1, mixup=0.8, cutmix=1.0, erase=0.5, smoothing=0.1)


def some_images(count: int = 26) -> ArrayImages:
    generator = np.random.default_rng(1)
    pixels = generator.integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)
    return ArrayImages(pixels, np.arange(count) % 3, ("a", "b", "c"))


def batches(lanes: int = 1, augment: Augment = EVERYTHING, seed: int = 0) -> TrainBatches:
    return TrainBatches(some_images(), augment, Preprocess(12), 8, seed, 3, lanes)


def same(one: Batch, two: Batch) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one[:3], two[:3], strict=True))


def test_an_epoch_resumed_at_any_step_continues_as_if_never_left() -> None:
    whole = [parts[0] for parts in batches().epoch(2, 0)]
    assert len(whole) == 3
    for first in range(3):
        rest = [parts[0] for parts in batches().epoch(2, first)]
        assert len(rest) == 3 - first
        assert all(same(a, b) for a, b in zip(whole[first:], rest, strict=True))


def test_epochs_and_seeds_differ() -> None:
    (first,) = next(iter(batches().epoch(0, 0)))
    assert not same(first, next(iter(batches().epoch(1, 0)))[0])
    assert not same(first, next(iter(batches(seed=1).epoch(0, 0)))[0])


@pytest.mark.parametrize("lanes", [2, 4])
def test_lanes_together_hold_the_batch_of_one(lanes: int) -> None:
    (whole,) = next(iter(batches().epoch(0, 0)))
    parts = next(iter(batches(lanes).epoch(0, 0, tuple(range(lanes)))))
    for field, expected in enumerate(whole[:3]):
        joined = torch.stack([part[:3][field] for part in parts], dim=1).flatten(0, 1)
        assert torch.equal(joined, expected)


def test_an_epoch_visits_no_image_twice() -> None:
    plain = Augment(padding=0, flip=0.0)
    seen = torch.cat([parts[0].images for parts in batches(augment=plain).epoch(0, 0)])
    assert len(torch.unique(seen.flatten(1), dim=0)) == 24


def test_a_batch_that_does_not_split_is_refused() -> None:
    with pytest.raises(LapisError, match="batch=8 does not split over 3"):
        batches(3)
    with pytest.raises(LapisError, match="multiple of 16"):
        batches(8)
    with pytest.raises(LapisError, match="exceeds the 26"):
        TrainBatches(some_images(), Augment(), Preprocess(12), 32, 0, 3)
    with pytest.raises(LapisError, match=r"flip=1\.5"):
        Augment(flip=1.5)


def write_files(folder: Path, count: int) -> None:
    (folder / "0").mkdir(parents=True)
    for index in range(count):
        Image.fromarray(np.full((9, 10, 3), 5 * index, np.uint8)).save(folder / "0" / f"{index}.png")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_corrupt_image_is_reported_and_the_epoch_goes_on(tmp_path: Path, workers: int) -> None:
    write_files(tmp_path, 8)
    (tmp_path / "0" / "3.png").write_bytes(b"broken")
    found = TrainBatches(load_folder(tmp_path), Augment(), Preprocess(6), 4, 0, 1, workers=workers)
    seen = [parts[0] for parts in found.epoch(0, 0)]
    assert [len(batch.images) for batch in seen] == [4, 4]
    (line,) = [line for batch in seen for line in batch.unreadable]
    assert "3.png" in line
    tested = list(TestBatches(load_folder(tmp_path), Preprocess(6), batch=4))
    assert [len(batch.pixels) for batch in tested] == [3, 4]
    assert "3.png" in tested[0].unreadable[0]


def test_worker_processes_change_nothing(tmp_path: Path) -> None:
    write_files(tmp_path, 4)
    alone, helped = (
        next(
            iter(TrainBatches(load_folder(tmp_path), EVERYTHING, Preprocess(6), 4, 0, 1, workers=workers).epoch(0, 0))
        )[0]
        for workers in (0, 2)
    )
    assert same(alone, helped)


def test_small_images_in_memory_are_enlarged_by_workers_too() -> None:
    alone, helped = ([parts[0] for parts in replace(batches(), workers=workers).epoch(0, 0)] for workers in (0, 2))
    assert len(helped) == 3
    assert all(same(one, two) for one, two in zip(alone, helped, strict=True))
    tested = [torch.cat([b.pixels for b in TestBatches(some_images(), Preprocess(12), 7, workers=w)]) for w in (0, 2)]
    assert torch.equal(*tested)


@pytest.mark.parametrize(("device", "pinned"), [("cpu", False), ("cuda", True)])
def test_what_goes_to_a_gpu_is_read_into_pinned_memory(
    device: str, pinned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def loader_of(views: object, **options: Any) -> list[object]:
        asked.update(options)
        return []

    monkeypatch.setattr(loader, "DataLoader", loader_of)
    assert list(TestBatches(some_images(), Preprocess(12), workers=3, device=torch.device(device))) == []
    assert (asked["pin_memory"], asked["num_workers"]) == (pinned, 3)


def test_a_copy_to_a_gpu_starts_from_pinned_memory_and_is_not_waited_for() -> None:
    tensor = Mock()
    tensor.is_pinned.return_value = False
    gpu = torch.device("cuda")
    assert loader._sent(tensor, gpu) is tensor.pin_memory().to.return_value
    tensor.pin_memory().to.assert_called_once_with(gpu, non_blocking=True)


def test_processes_share_the_test_images_without_overlap() -> None:
    images = some_images()
    labels = [torch.cat([b.labels for b in TestBatches(images, Preprocess(8), 4, rank=r, world=3)]) for r in range(3)]
    assert [len(part) for part in labels] == [9, 9, 8]
    assert sorted(torch.cat(labels).tolist()) == sorted(images.labels.tolist())


@pytest.mark.parametrize("crop", [1.0, 0.875])
def test_test_images_are_what_a_deployed_network_sees(crop: float) -> None:
    images, preprocess = some_images(5), Preprocess(14, crop=crop)
    (batch,) = TestBatches(images, preprocess)
    assert (batch.pixels.numpy() == np.stack([preprocess.resize(image) for image in images.pixels])).all()


@pytest.mark.parametrize("crop", [1.0, 0.875])
def test_training_images_are_resized_by_the_same_rule(crop: float) -> None:
    images, plain = some_images(8), Augment(padding=0, flip=0.0)
    ((batch,),) = TrainBatches(images, plain, Preprocess(14, crop=crop), 8, 0, 3).epoch(0, 0)
    # Augmented views are used to their edges, without the centre crop of a test image.
    whole = torch.from_numpy(np.stack([Preprocess(14).resize(image) for image in images.pixels]))
    expected = normalise(whole, Preprocess(14))
    assert sorted(batch.images.flatten(1).tolist()) == sorted(expected.flatten(1).tolist())
