"""Labelled images: in memory, or read one by one from files."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lapis.errors import LapisError
from lapis.preprocess import Pixels, read_file

Labels = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int64]


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

    def __getitem__(self, index: int, /) -> Pixels:
        pixels: Pixels = self.pixels[index]
        return pixels

    def select(self, indices: Indices) -> ArrayImages:
        """Some of the images, in the order given."""
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

    def __getitem__(self, index: int, /) -> Pixels:
        return read_file(self.paths[index])

    def select(self, indices: Indices) -> FileImages:
        """Some of the images, in the order given."""
        return FileImages(tuple(self.paths[index] for index in indices), self.labels[indices], self.classes)


# n labelled images; `images[i]` is uint8 (height, width, 3).
Images = ArrayImages | FileImages


def spread(images: Images, count: int) -> Images:
    """`count` of the images, evenly spread, so that images sorted by class keep all classes."""
    if count >= len(images):
        return images
    return images.select(np.arange(count, dtype=np.int64) * len(images) // max(1, count))


def set_aside(images: Images, count: int) -> tuple[Images, Images]:
    """(the other images, `count` images to validate on).

    Those are evenly spread over the images sorted by class, in their own order within a class, so every class gives the
    same share and the choice is always the same.
    """
    if not 0 < count < len(images):
        raise LapisError(
            f"data.validate={count} images cannot be set aside of {len(images)}; use fewer, or 0 for the test images"
        )
    held = np.zeros(len(images), bool)
    held[np.argsort(images.labels, kind="stable")[np.arange(count) * len(images) // count]] = True
    return images.select(np.flatnonzero(~held)), images.select(np.flatnonzero(held))


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


def match_classes(images: Images, names: Sequence[str], classes: int) -> tuple[Images, str]:
    """The images with the labels that a network of these class names uses, and how they were matched.

    Names are matched where both sides have them, whatever their order; a name that the network does not know is an
    error. Folders named by number, and networks without names, are matched by number and by position.
    """
    numbered = all(name.isdecimal() for name in images.classes)
    if numbered or not names:
        check_classes(images.classes, classes)
        return images, "by number" if numbered else "by position: the network has no class names"
    unknown = [name for name in images.classes if name not in names]
    if unknown:
        raise LapisError(
            f"the network has no class {unknown[0]!r} ({len(unknown)} of {len(images.classes)} class names of the "
            f"images are unknown to it); its classes: {', '.join(names)}"
        )
    place = np.array([names.index(name) for name in images.classes], np.int64)
    return dataclasses.replace(images, labels=place[images.labels], classes=tuple(names)), "by name"
