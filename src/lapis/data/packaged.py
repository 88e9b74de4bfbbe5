"""Images that come with the package: samples of CIFAR-10, and photographs with their authors and licences.

The samples are lossless pictures of 32 px tiles: the first 400 images of the test set, and the first 32 training images
of each class.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from lapis.assets import FOLDER
from lapis.data.cifar import SIDE, Split
from lapis.data.images import ArrayImages
from lapis.errors import LapisError
from lapis.preprocess import Pixels, decode_image

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
# Tiles in a row.
TILES = 20
# `sample:N` names image N of the sample wherever a command takes an image.
SAMPLE = "sample:"


def packaged_images(split: Split = "test") -> ArrayImages:
    """The packaged images (n, 32, 32, 3) of CIFAR-10, for demonstrations and tests."""
    name = "cifar10_test_slice" if split == "test" else "cifar10_train_sample"
    picture = decode_image((FOLDER / f"{name}.webp").read_bytes(), f"{name}.webp")
    tiles = picture.reshape(-1, SIDE, TILES, SIDE, 3).swapaxes(1, 2).reshape(-1, SIDE, SIDE, 3)
    digits = (FOLDER / f"{name}.labels").read_text().strip()
    labels = np.array([int(digit) for digit in digits])
    return ArrayImages(np.ascontiguousarray(tiles), labels, CIFAR10_CLASSES)


def named_image(name: str) -> tuple[Pixels, str]:
    """The pixels (32, 32, 3) and the class of the packaged image that `sample:N` names."""
    images, number = packaged_images(), name.removeprefix(SAMPLE)
    if not number.isdecimal() or int(number) >= len(images):
        raise LapisError(f"{name!r} is not a packaged image; use {SAMPLE}0 to {SAMPLE}{len(images) - 1}")
    return images[int(number)], CIFAR10_CLASSES[images.labels[int(number)]]


class Photo(NamedTuple):
    """A photograph (height, width, 3), what it shows, and whose it is."""

    image: Pixels
    file: str
    shows: str
    credit: str


def load_photos() -> list[Photo]:
    """The packaged photographs; CREDITS.csv beside them has authors and licences."""
    import csv  # few need it, and it takes a while

    folder = FOLDER / "photos"
    rows = csv.DictReader((folder / "CREDITS.csv").read_text(encoding="utf-8").splitlines())
    return [
        Photo(
            decode_image((folder / row["file"]).read_bytes(), row["file"]),
            row["file"],
            row["shows"],
            f"{row['author']}, {row['licence']}",
        )
        for row in rows
    ]
