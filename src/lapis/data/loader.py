"""Batches of images; their order and augmentation depend only on seed, epoch and step.

No random generator keeps state between batches, so a run can resume at any step. The images of a global batch go in
turn to `lanes` (processes times accumulated parts), so an image gets the same augmentation for any number of lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from lapis._util.overrides import check_range
from lapis.data import transforms
from lapis.data.images import ArrayImages, Images, check_classes
from lapis.errors import LapisError
from lapis.nn.pixels import normalise
from lapis.preprocess import Pixels, Preprocess, UnreadableImageError

# The purposes of generators, so that no two random streams of one seed are equal.
ORDER, BATCH, SAMPLE, ERASE = range(4)
# If more than this share of the images cannot be read, training stops.
UNREADABLE_SHARE = 0.01
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Augment:
    """The augmentation of training images. An alpha or probability of 0 turns a part off."""

    padding: int = 4
    smallest_area: float = 0.08
    flip: float = 0.5
    operations: int = 0
    mixup: float = 0.0
    cutmix: float = 0.0
    mix_prob: float = 1.0
    erase: float = 0.0
    smoothing: float = 0.0

    def __post_init__(self) -> None:
        check_range("augment", self, ("smallest_area", "flip", "mix_prob", "erase", "smoothing"), 0, 1)
        check_range("augment", self, ("padding", "operations", "mixup", "cutmix"), 0)


class Batch(NamedTuple):
    """Training images (n, 3, S, S), normalised; labels (n,); targets (n, classes), rows that sum to 1."""

    images: Tensor
    labels: Tensor
    targets: Tensor
    unreadable: tuple[str, ...] = ()


class PixelBatch(NamedTuple):
    """Bytes of images (n, S, S, 3), as a worker hands them over and an executor takes them, and labels (n,)."""

    pixels: Tensor
    labels: Tensor
    unreadable: tuple[str, ...] = ()


class Part(NamedTuple):
    """The images that one lane takes of one step's batch."""

    step: int
    lane: int
    indices: npt.NDArray[np.int64]


@dataclass(frozen=True)
class TrainBatches:
    """The batches of a run. `batch` counts images over all lanes.

    Bytes are read by `workers` processes and sent from pinned memory to the `device`, which normalises and mixes them.
    """

    images: Images
    augment: Augment
    preprocess: Preprocess
    batch: int
    seed: int
    classes: int
    lanes: int = 1
    workers: int = 0
    device: torch.device = CPU

    def __post_init__(self) -> None:
        if self.batch < 1 or self.batch % self.lanes:
            raise LapisError(
                f"batch={self.batch} does not split over {self.lanes} parts (processes times optim.accumulate); "
                f"use a multiple of {self.lanes}"
            )
        mixes = self.augment.mix_prob > 0 and (self.augment.mixup > 0 or self.augment.cutmix > 0)
        if mixes and self.batch % (2 * self.lanes):
            raise LapisError(f"mixup and cutmix pair images: batch={self.batch} must be a multiple of {2 * self.lanes}")
        if self.batch > len(self.images):
            raise LapisError(f"batch={self.batch} exceeds the {len(self.images)} training images")
        check_classes(self.images.classes, self.classes)

    @property
    def steps(self) -> int:
        """Steps per epoch; images that do not fill a batch are left out of this epoch."""
        return len(self.images) // self.batch

    def epoch(self, epoch: int, first_step: int, lanes: tuple[int, ...] = (0,)) -> Iterator[tuple[Batch, ...]]:
        """For each step from `first_step` on, one batch per lane of `lanes`."""
        order = _generator(self.seed, ORDER, epoch).permutation(len(self.images))
        parts = [
            Part(step, lane, order[step * self.batch + lane : (step + 1) * self.batch : self.lanes])
            for step in range(first_step, self.steps)
            for lane in lanes
        ]
        views = _loader([partial(self.view, epoch, part) for part in parts], self.workers, self.device)
        collected: list[Batch] = []
        for part, view in zip(parts, views, strict=True):
            collected.append(self._finish(epoch, part, view))
            if len(collected) == len(lanes):
                yield tuple(collected)
                collected = []

    def view(self, epoch: int, part: Part) -> PixelBatch:
        """The augmented images of a part; only what needs all images of a batch is left to do."""
        labels = torch.from_numpy(self.images.labels[part.indices])
        if isinstance(self.images, ArrayImages):
            return PixelBatch(torch.from_numpy(self._array_view(self.images, epoch, part)), labels)
        pixels, places, bad = _readable(part.indices, partial(self._read, epoch), self.preprocess.size)
        if places:
            # An image that cannot be read is replaced by its neighbour in the batch, so that batches keep their size.
            nearest = np.searchsorted(places, np.arange(len(labels)), side="right") - 1
            pixels = pixels[nearest.clip(min=0)]
        return PixelBatch(torch.from_numpy(pixels), labels, bad)

    def _array_view(self, images: ArrayImages, epoch: int, part: Part) -> Pixels:
        """Shifted and mirrored at the images' own small size, then resized as a test image is."""
        generator, pad = _generator(self.seed, BATCH, epoch, part.step), self.augment.padding
        own = slice(part.lane, None, self.lanes)
        tops, lefts = generator.integers(2 * pad + 1, size=(2, self.batch))
        mirror = generator.uniform(size=self.batch) < self.augment.flip
        pixels = transforms.flipped(
            transforms.shifted_crops(images.pixels[part.indices], tops[own], lefts[own], pad), mirror[own]
        )
        if self.augment.operations:
            draws = [_generator(self.seed, SAMPLE, epoch, index) for index in part.indices]
            count = self.augment.operations
            pixels = np.stack([transforms.rand_augment(*each, count) for each in zip(pixels, draws, strict=True)])
        # Without the centre crop: an augmented image is used to its edges.
        whole = replace(self.preprocess, crop=1.0)
        return np.stack([whole.resize(one) for one in pixels])

    def _read(self, epoch: int, index: int) -> Pixels:
        """One image from its file, cropped and mirrored."""
        pixels, augment = self.images[index], self.augment
        draw = _generator(self.seed, SAMPLE, epoch, index)
        pixels = transforms.random_resized_crop(pixels, self.preprocess.size, augment.smallest_area, draw)
        if draw.uniform() < augment.flip:
            pixels = pixels[:, ::-1]
        return transforms.rand_augment(pixels, draw, augment.operations)

    def _finish(self, epoch: int, part: Part, view: PixelBatch) -> Batch:
        augment = self.augment
        if not len(view.pixels):
            raise LapisError(f"none of the images of a batch can be read; the first: {view.unreadable[0]}")
        images = normalise(_sent(view.pixels, self.device), self.preprocess)
        # A separate stream, so that every lane draws the same mix for the step.
        draw = _generator(self.seed, BATCH, epoch, part.step, 1)
        mix = transforms.draw_mix(draw, augment.mix_prob, augment.mixup, augment.cutmix, self.preprocess.size)
        if mix is not None:
            images = transforms.mix_images(images, mix)
        if augment.erase:
            draws = [_generator(self.seed, ERASE, epoch, index) for index in part.indices]
            images = transforms.erase(images, draws, augment.erase)
        targets = transforms.soft_targets(view.labels, self.classes, augment.smoothing, mix)
        return Batch(images, view.labels, _sent(targets, self.device), view.unreadable)


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
    device: torch.device = CPU

    def __iter__(self) -> Iterator[PixelBatch]:
        own = np.arange(self.rank, len(self.images), self.world)
        parts = [own[start : start + self.batch] for start in range(0, len(own), self.batch)]
        for view in _loader([partial(self.view, part) for part in parts], self.workers, self.device):
            yield PixelBatch(_sent(view.pixels, self.device), view.labels, view.unreadable)

    def view(self, indices: npt.NDArray[np.int64]) -> PixelBatch:
        """Those images of a part that can be read, resized."""
        images, resize = self.images, self.preprocess.resize
        pixels, places, bad = _readable(indices, lambda index: resize(images[index]), self.preprocess.size)
        labels = np.asarray(self.images.labels[indices[places]], np.int64)
        return PixelBatch(torch.from_numpy(pixels), torch.from_numpy(labels), bad)


def _readable(
    indices: npt.NDArray[np.int64], read: Callable[[int], Pixels], size: int
) -> tuple[Pixels, list[int], tuple[str, ...]]:
    """The images (n, size, size, 3) that can be read, their places among the indices, and a line for each other one."""
    found, places, bad = [np.zeros((0, size, size, 3), np.uint8)], [], []
    for place, index in enumerate(indices):
        try:
            found.append(read(int(index))[None])
            places.append(place)
        except UnreadableImageError as error:
            bad.append(str(error))
    return np.concatenate(found), places, tuple(bad)


def _loader(views: list[partial[PixelBatch]], workers: int, device: torch.device) -> Iterator[PixelBatch]:
    """The views in order, each made by one process; for a GPU they are in pinned memory."""
    data: Any = views  # a list is all that a loader needs
    pinned = device.type == "cuda"
    return iter(DataLoader(data, batch_size=None, num_workers=workers, collate_fn=_made, pin_memory=pinned))


def _made(view: Any) -> Any:
    return view()


def _sent(x: Tensor, device: torch.device) -> Tensor:
    """x on the device; from pinned memory the copy goes on while Python does other things."""
    if device.type == "cuda" and not x.is_pinned():
        x = x.pin_memory()
    return x.to(device, non_blocking=True)


def _generator(*key: int) -> np.random.Generator:
    return np.random.default_rng([int(part) for part in key])
