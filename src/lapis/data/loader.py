"""Batches of images; their order and augmentation depend only on seed, epoch and step.

No random generator keeps state between batches, so a run can resume at any step. The images of a global batch go in
turn to `lanes` (processes times accumulated parts), so an image gets the same augmentation for any number of lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
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
CPU = torch.device("cpu")


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
            Part(step, lane, order[step * self.batch + lane : (step + 1) * self.batch : self.lanes])
            for step in range(first_step, self.steps)
            for lane in lanes
        ]
        collected: list[Batch] = []
        for part, view in zip(
            parts, _loader(_Views(partial(self.view, epoch), parts), self.workers, self.device), strict=True
        ):
            collected.append(self._finish(epoch, part, view))
            if len(collected) == len(lanes):
                yield tuple(collected)
                collected = []

    def view(self, epoch: int, part: Part) -> PixelBatch:
        """The augmented images of a part; only what needs all images of a batch is left to do."""
        labels = torch.from_numpy(self.images.labels[part.indices])
        if isinstance(self.images, ArrayImages):
            return PixelBatch(torch.from_numpy(self._array_view(self.images, epoch, part)), labels)
        pixels, unreadable = self._read_view(epoch, part)
        return PixelBatch(torch.from_numpy(pixels), labels, unreadable)

    def _array_view(self, images: ArrayImages, epoch: int, part: Part) -> Pixels:
        """Shifted and mirrored at the images' own small size, then resized as a test image is."""
        generator, pad = _generator(self.seed, BATCH, epoch, part.step), self.augment.padding
        own = slice(part.lane, None, self.lanes)
        tops, lefts = generator.integers(2 * pad + 1, size=(2, self.batch))
        mirror = generator.uniform(size=self.batch) < self.augment.flip
        pixels = flipped(shifted_crops(images.pixels[part.indices], tops[own], lefts[own], pad), mirror[own])
        if self.augment.operations:
            draws = [_generator(self.seed, SAMPLE, epoch, index) for index in part.indices]
            amount = (self.augment.operations, self.augment.magnitude)
            pixels = np.stack([rand_augment(one, *amount, draw) for one, draw in zip(pixels, draws, strict=True)])
        return np.stack([self.whole.resize(one) for one in pixels])

    def _read_view(self, epoch: int, part: Part) -> tuple[Pixels, tuple[str, ...]]:
        """Read, cropped and mirrored one by one; none, if no image can be read."""
        pixels, bad = _readable(part.indices, lambda index: self._read(epoch, index))
        if not any(one is not None for one in pixels):
            return np.zeros((0, self.preprocess.size, self.preprocess.size, 3), np.uint8), bad
        # An image that cannot be read is replaced by its neighbour in the batch, so that batches keep their size.
        last, whole = next(one for one in pixels if one is not None), []
        for one in pixels:
            last = last if one is None else one
            whole.append(last)
        return np.stack(whole), bad

    def _read(self, epoch: int, index: int) -> Pixels:
        pixels, augment = self.images.read(index), self.augment
        draw = _generator(self.seed, SAMPLE, epoch, index)
        pixels = random_resized_crop(pixels, self.preprocess.size, augment.smallest_area, draw)
        if draw.uniform() < augment.flip:
            pixels = pixels[:, ::-1]
        return rand_augment(pixels, augment.operations, augment.magnitude, draw) if augment.operations else pixels

    def _finish(self, epoch: int, part: Part, view: PixelBatch) -> Batch:
        augment = self.augment
        if not len(view.pixels):
            raise LapisError(f"none of the images of a batch can be read; the first: {view.unreadable[0]}")
        images = normalise(_sent(view.pixels, self.device), self.preprocess)
        # A separate stream, so that every lane draws the same mix for the step.
        draw = _generator(self.seed, BATCH, epoch, part.step, 1)
        mix = (
            draw_mix(draw, augment.mix_prob, augment.mixup, augment.cutmix, self.preprocess.size)
            if augment.mixes
            else None
        )
        if mix is not None:
            images = mix_images(images, mix)
        if augment.erase:
            draws = [_generator(self.seed, ERASE, epoch, index) for index in part.indices]
            images = erase(images, draws, augment.erase)
        targets = soft_targets(view.labels, self.classes, augment.smoothing, mix)
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

    def __len__(self) -> int:
        """How many batches there are."""
        return -(-len(range(self.rank, len(self.images), self.world)) // self.batch)

    def __iter__(self) -> Iterator[PixelBatch]:
        own = np.arange(self.rank, len(self.images), self.world)
        parts = [own[start : start + self.batch] for start in range(0, len(own), self.batch)]
        for view in _loader(_Views(self.view, parts), self.workers, self.device):
            yield PixelBatch(_sent(view.pixels, self.device), view.labels, view.unreadable)

    def view(self, indices: npt.NDArray[np.int64]) -> PixelBatch:
        """Those images of a part that can be read, resized."""
        pixels, bad = _readable(indices, self._read)
        good = [number for number, one in enumerate(pixels) if one is not None]
        empty = np.zeros((0, self.preprocess.size, self.preprocess.size, 3), np.uint8)
        found = [one for one in pixels if one is not None]
        labels = np.asarray(self.images.labels[indices[good]], np.int64)
        return PixelBatch(torch.from_numpy(np.stack(found) if found else empty), torch.from_numpy(labels), bad)

    def _read(self, index: int) -> Pixels:
        images = self.images
        return self.preprocess.resize(images.pixels[index] if isinstance(images, ArrayImages) else images.read(index))


@dataclass(frozen=True)
class _Views(Dataset[PixelBatch]):
    """What `view` makes of each part, in whichever process."""

    view: Callable[[Any], PixelBatch]
    parts: Sequence[Any]

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, number: int) -> PixelBatch:
        return self.view(self.parts[number])


def _readable(
    indices: npt.NDArray[np.int64], read: Callable[[int], Pixels]
) -> tuple[list[Pixels | None], tuple[str, ...]]:
    """What `read` gives for every index, None where it cannot, and a line for each of these."""
    found: list[Pixels | None] = []
    bad: list[str] = []
    for index in indices:
        try:
            found.append(read(int(index)))
        except UnreadableImageError as error:
            found.append(None)
            bad.append(str(error))
    return found, tuple(bad)


def _loader(views: Dataset[PixelBatch], workers: int, device: torch.device) -> Iterator[PixelBatch]:
    """The views in order, each made by one process; for a GPU they are in pinned memory."""
    pinned = device.type == "cuda"
    return iter(DataLoader(views, batch_size=None, num_workers=workers, collate_fn=_as_it_is, pin_memory=pinned))


def _as_it_is(view: Any) -> Any:
    return view


def _sent(x: Tensor, device: torch.device) -> Tensor:
    """x on the device; from pinned memory the copy goes on while Python does other things."""
    if device.type == "cuda" and not x.is_pinned():
        x = x.pin_memory()
    return x.to(device, non_blocking=True)


def _generator(*key: int) -> np.random.Generator:
    return np.random.default_rng([int(part) for part in key])
