"""Batches of images; their order and augmentation depend only on seed, epoch and step.

No random generator keeps state between batches, so a run can resume at any step. The images of a global batch go in
turn to `lanes` (processes times accumulated parts), so an image gets the same augmentation for any number of lanes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lapis.data.augment import rand_augment
from lapis.data.images import ArrayImages, Images, check_classes
from lapis.data.transforms import (
    draw_mix,
    erase,
    flipped,
    mix_images,
    random_resized_crop,
    shifted_crops,
    soft_targets,
)
from lapis.errors import LapisError
from lapis.nn.pixels import normalise
from lapis.preprocess import Pixels, Preprocess, UnreadableImageError

# The purposes of generators, so that no two random streams of one seed are equal.
ORDER, BATCH, SAMPLE, ERASE = range(4)
# If more than this share of the images cannot be read, training stops.
UNREADABLE_SHARE = 0.01


@dataclass(frozen=True)
class Augment:
    """The augmentation of training images. An alpha or probability of 0 turns a part off."""

    padding: int = 4
    smallest_area: float = 0.08
    flip: float = 0.5
    operations: int = 0
    magnitude: float = 9.0
    mixup: float = 0.0
    cutmix: float = 0.0
    mix_prob: float = 1.0
    erase: float = 0.0
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        for name in ("smallest_area", "flip", "mix_prob", "erase", "smoothing"):
            if not 0 <= getattr(self, name) <= 1:
                raise LapisError(f"augment.{name}={getattr(self, name)} must lie in 0..1")
        for name in ("padding", "operations", "magnitude", "mixup", "cutmix"):
            if getattr(self, name) < 0:
                raise LapisError(f"augment.{name}={getattr(self, name)} must not be negative")

    @property
    def mixes(self) -> bool:
        return self.mix_prob > 0 and (self.mixup > 0 or self.cutmix > 0)


class Batch(NamedTuple):
    """Training images (n, 3, S, S), normalised; labels (n,); targets (n, classes), rows that sum to 1."""

    images: Tensor
    labels: Tensor
    targets: Tensor
    unreadable: tuple[str, ...] = ()


class PixelBatch(NamedTuple):
    """Bytes of test images (n, S, S, 3), as an executor takes them, and labels (n,)."""

    pixels: Tensor
    labels: Tensor
    unreadable: tuple[str, ...] = ()


class Sample(NamedTuple):
    pixels: Pixels | None
    label: int
    unreadable: str | None


@dataclass(frozen=True)
class TrainBatches:
    """The batches of a run. `batch` counts images over all lanes."""

    images: Images
    augment: Augment
    preprocess: Preprocess
    batch: int
    seed: int
    classes: int
    lanes: int = 1
    workers: int = 0

    def __post_init__(self) -> None:
        if self.batch < 1 or self.batch % self.lanes:
            raise LapisError(
                f"batch={self.batch} does not split over {self.lanes} parts (processes times optim.accumulate); "
                f"use a multiple of {self.lanes}"
            )
        if self.augment.mixes and self.batch % (2 * self.lanes):
            raise LapisError(f"mixup and cutmix pair images: batch={self.batch} must be a multiple of {2 * self.lanes}")
        if self.batch > len(self.images):
            raise LapisError(f"batch={self.batch} exceeds the {len(self.images)} training images")
        check_classes(self.images.classes, self.classes)

    @property
    def whole(self) -> Preprocess:
        """The preprocessing without its centre crop: an augmented image is used to its edges."""
        return replace(self.preprocess, crop=1.0)

    @property
    def steps(self) -> int:
        """Steps per epoch; images that do not fill a batch are left out of this epoch."""
        return len(self.images) // self.batch

    def epoch(self, epoch: int, first_step: int, lanes: tuple[int, ...] = (0,)) -> Iterator[tuple[Batch, ...]]:
        """For each step from `first_step` on, one batch per lane of `lanes`."""
        order = _generator(self.seed, ORDER, epoch).permutation(len(self.images))
        parts = [
            (step, lane, order[step * self.batch + lane : (step + 1) * self.batch : self.lanes])
            for step in range(first_step, self.steps)
            for lane in lanes
        ]
        views: Iterator[tuple[Pixels, tuple[str, ...]]]
        if isinstance(self.images, ArrayImages):
            views = (self._array_view(self.images, epoch, step, lane, part) for step, lane, part in parts)
        else:
            views = self._read_views(epoch, [part for _, _, part in parts])
        collected: list[Batch] = []
        for (step, _, part), (pixels, unreadable) in zip(parts, views, strict=True):
            collected.append(self._finish(epoch, step, part, pixels, unreadable))
            if len(collected) == len(lanes):
                yield tuple(collected)
                collected = []

    def _array_view(
        self, images: ArrayImages, epoch: int, step: int, lane: int, part: npt.NDArray[np.int64]
    ) -> tuple[Pixels, tuple[str, ...]]:
        """Shifted and mirrored at the images' own small size, then resized as a test image is."""
        generator, pad = _generator(self.seed, BATCH, epoch, step), self.augment.padding
        own = slice(lane, None, self.lanes)
        tops, lefts = generator.integers(2 * pad + 1, size=(2, self.batch))
        mirror = generator.uniform(size=self.batch) < self.augment.flip
        pixels = flipped(shifted_crops(images.pixels[part], tops[own], lefts[own], pad), mirror[own])
        if self.augment.operations:
            draws = [_generator(self.seed, SAMPLE, epoch, index) for index in part]
            amount = (self.augment.operations, self.augment.magnitude)
            pixels = np.stack([rand_augment(one, *amount, draw) for one, draw in zip(pixels, draws, strict=True)])
        return np.stack([self.whole.resize(one) for one in pixels]), ()

    def _read_views(self, epoch: int, parts: list[npt.NDArray[np.int64]]) -> Iterator[tuple[Pixels, tuple[str, ...]]]:
        """Read, cropped and mirrored one by one, in worker processes where there are any."""
        reader = _TrainReader(self.images, self.augment, self.preprocess.size, self.seed, epoch)
        for samples in _loader(reader, parts, self.workers):
            # An image that cannot be read is replaced by its neighbour in the batch, so that batches keep their size.
            readable = [sample.pixels for sample in samples if sample.pixels is not None]
            bad = tuple(sample.unreadable for sample in samples if sample.unreadable)
            if not readable:
                raise LapisError(f"none of the images of a batch can be read; the first: {bad[0]}")
            last, pixels = readable[0], []
            for sample in samples:
                last = last if sample.pixels is None else sample.pixels
                pixels.append(last)
            yield np.stack(pixels), bad

    def _finish(
        self, epoch: int, step: int, part: npt.NDArray[np.int64], pixels: Pixels, unreadable: tuple[str, ...]
    ) -> Batch:
        augment = self.augment
        images = normalise(torch.from_numpy(pixels), self.preprocess)
        # A separate stream, so that every lane draws the same mix for the step.
        draw = _generator(self.seed, BATCH, epoch, step, 1)
        mix = (
            draw_mix(draw, augment.mix_prob, augment.mixup, augment.cutmix, self.preprocess.size)
            if augment.mixes
            else None
        )
        if mix is not None:
            images = mix_images(images, mix)
        if augment.erase:
            images = erase(images, [_generator(self.seed, ERASE, epoch, index) for index in part], augment.erase)
        labels = torch.from_numpy(self.images.labels[part])
        return Batch(images, labels, soft_targets(labels, self.classes, augment.smoothing, mix), unreadable)


@dataclass(frozen=True)
class TestBatches:
    """Images in order, as a deployed network would see them; of `world` processes, this one takes every `world`-th."""

    __test__ = False  # pytest would take it for a test because of its name

    images: Images
    preprocess: Preprocess
    batch: int = 64
    rank: int = 0
    world: int = 1
    workers: int = 0

    def __len__(self) -> int:
        """How many batches there are."""
        return -(-len(range(self.rank, len(self.images), self.world)) // self.batch)

    def __iter__(self) -> Iterator[PixelBatch]:
        own = np.arange(self.rank, len(self.images), self.world)
        parts = [own[start : start + self.batch] for start in range(0, len(own), self.batch)]
        for pixels, labels, unreadable in self._views(parts):
            yield PixelBatch(torch.from_numpy(pixels), torch.from_numpy(labels), unreadable)

    def _views(
        self, parts: list[npt.NDArray[np.int64]]
    ) -> Iterator[tuple[Pixels, npt.NDArray[np.int64], tuple[str, ...]]]:
        if isinstance(self.images, ArrayImages):
            for part in parts:
                pixels = np.stack([self.preprocess.resize(self.images.pixels[index]) for index in part])
                yield pixels, self.images.labels[part], ()
            return
        for samples in _loader(_TestReader(self.images, self.preprocess), parts, self.workers):
            good = [sample for sample in samples if sample.pixels is not None]
            bad = tuple(sample.unreadable for sample in samples if sample.unreadable)
            views = [sample.pixels for sample in good if sample.pixels is not None]
            empty = np.zeros((0, self.preprocess.size, self.preprocess.size, 3), np.uint8)
            yield np.stack(views) if views else empty, np.asarray([sample.label for sample in good], np.int64), bad


@dataclass(frozen=True)
class _TrainReader(Dataset[Sample]):
    images: Images
    augment: Augment
    size: int
    seed: int
    epoch: int

    def __getitem__(self, index: int) -> Sample:
        label = int(self.images.labels[index])
        try:
            pixels = self.images.read(index)
        except UnreadableImageError as error:
            return Sample(None, label, str(error))
        draw = _generator(self.seed, SAMPLE, self.epoch, index)
        pixels = random_resized_crop(pixels, self.size, self.augment.smallest_area, draw)
        if draw.uniform() < self.augment.flip:
            pixels = pixels[:, ::-1]
        if self.augment.operations:
            pixels = rand_augment(pixels, self.augment.operations, self.augment.magnitude, draw)
        return Sample(pixels, label, None)


@dataclass(frozen=True)
class _TestReader(Dataset[Sample]):
    images: Images
    preprocess: Preprocess

    def __getitem__(self, index: int) -> Sample:
        label = int(self.images.labels[index])
        try:
            return Sample(self.preprocess.resize(self.images.read(index)), label, None)
        except UnreadableImageError as error:
            return Sample(None, label, str(error))


def _loader(reader: Dataset[Sample], parts: list[npt.NDArray[np.int64]], workers: int) -> Iterator[list[Sample]]:
    batches = [[int(index) for index in part] for part in parts]
    options: dict[str, Any] = {"num_workers": workers, "batch_sampler": batches, "collate_fn": list}
    return iter(DataLoader(reader, **options))


def _generator(*key: int) -> np.random.Generator:
    return np.random.default_rng([int(part) for part in key])
