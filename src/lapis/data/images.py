"""Labelled images: in memory, or read one by one from files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from lapis.errors import LapisError
from lapis.preprocess import Pixels, read_image

Labels = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int64]


class Images(Protocol):
    """n labelled images; `read(i)` is uint8 (height, width, 3)."""

    @property
    def labels(self) -> Labels: ...

    @property
    def classes(self) -> tuple[str, ...]: ...

    def __len__(self) -> int: ...

    def read(self, index: int) -> Pixels: ...

    def select(self, indices: Indices) -> Images:
        """Some of the images, in the order given."""
        ...


@dataclass(frozen=True)
class ArrayImages:
    """Small images of one size, all in memory: pixels (n, height, width, 3)."""

    pixels: Pixels
    labels: Labels
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.pixels.ndim != 4 or self.pixels.shape[3] != 3 or self.pixels.dtype != np.uint8:
            raise LapisError(f"pixels {self.pixels.dtype} {self.pixels.shape}; expected uint8 (n, height, width, 3)")
        check_labels(self.labels, len(self.pixels), len(self.classes))

    def __len__(self) -> int:
        return len(self.pixels)

    def read(self, index: int) -> Pixels:
        pixels: Pixels = self.pixels[index]
        return pixels

    def select(self, indices: Indices) -> ArrayImages:
        return ArrayImages(self.pixels[indices], self.labels[indices], self.classes)


@dataclass(frozen=True)
class FileImages:
    """Images of any size in files, decoded when they are read."""

    paths: tuple[Path, ...]
    labels: Labels
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        check_labels(self.labels, len(self.paths), len(self.classes))

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, index: int) -> Pixels:
        return read_image(self.paths[index])

    def select(self, indices: Indices) -> FileImages:
        return FileImages(tuple(self.paths[index] for index in indices), self.labels[indices], self.classes)


def spread(images: Images, count: int) -> Images:
    """`count` of the images, evenly spread, so that images sorted by class keep all classes."""
    if count >= len(images):
        return images
    return images.select(np.arange(count, dtype=np.int64) * len(images) // count)


def check_labels(labels: Sequence[int] | Labels, images: int, classes: int) -> None:
    """Check that there is one label per image, and that each is a class."""
    if len(labels) != images:
        raise LapisError(f"{images} images with {len(labels)} labels; every image needs one")
    if images and not (min(labels) >= 0 and max(labels) < classes):
        raise LapisError(f"labels span {min(labels)}..{max(labels)}, with {classes} classes")


def check_classes(names: Sequence[str], classes: int) -> None:
    """Refuse images whose classes are not those of a network with `classes` outputs.

    Folders named by number may cover only some of a network's classes; names must match in number.
    """
    if len(names) > classes or (len(names) < classes and not all(name.isdecimal() for name in names)):
        raise LapisError(f"the images have {len(names)} classes, the network {classes}; use a network for this dataset")
