"""Labelled images: held in memory, or read one by one from where they lie."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from lapis.errors import LapisError

Pixels = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int64]


class UnreadableImageError(LapisError):
    """An image that cannot be decoded; `where` is its path."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"cannot read image {where}: {why}")
        self.where = where

    def __reduce__(self) -> Any:
        # Exceptions cross from loader processes by pickle, which calls the class with `args` alone.
        return UnreadableImageError, (self.where, str(self).split(": ", 1)[-1])


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
    """Images in files of any size, decoded when asked for."""

    paths: tuple[Path, ...]
    labels: Labels
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        check_labels(self.labels, len(self.paths), len(self.classes))

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, index: int) -> Pixels:
        path = self.paths[index]
        try:
            data = path.read_bytes()
        except OSError as error:
            raise UnreadableImageError(str(path), error.strerror or str(error)) from error
        return decode(data, str(path))

    def select(self, indices: Indices) -> FileImages:
        return FileImages(tuple(self.paths[index] for index in indices), self.labels[indices], self.classes)


def spread(images: Images, count: int) -> Images:
    """`count` of the images, evenly spread, so that images sorted by class keep all classes."""
    if count >= len(images):
        return images
    return images.select(np.arange(count, dtype=np.int64) * len(images) // count)


def decode(data: bytes, where: str) -> Pixels:
    """Pixels (height, width, 3) of an encoded image; `where` names it in the error."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            return np.asarray(image.convert("RGB"))
    except UnidentifiedImageError as error:
        raise UnreadableImageError(where, "it is no image") from error
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise UnreadableImageError(where, str(error)) from error


def check_labels(labels: Sequence[int] | Labels, images: int, classes: int) -> None:
    """One label an image, each naming a class."""
    if len(labels) != images:
        raise LapisError(f"{images} images with {len(labels)} labels; every image needs one")
    if images and not (min(labels) >= 0 and max(labels) < classes):
        raise LapisError(f"labels span {min(labels)}..{max(labels)}, with {classes} classes")
