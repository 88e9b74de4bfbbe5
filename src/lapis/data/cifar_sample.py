"""The packaged samples of CIFAR-10: 400 test images and 320 training images, as lossless pictures of 32 px tiles.

The first are the first 400 of the test set, the others the first 32 training images of each class.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from lapis.errors import LapisError
from lapis.preprocess import Pixels, decode_image

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
# Tiles in a row, and pixels of a tile's side.
TILES, SIDE = 20, 32
# `sample:N` names image N of the sample wherever a command takes an image.
SAMPLE = "sample:"


class Sample(NamedTuple):
    """Images uint8 (n, 32, 32, 3) and labels int64 (n,) in 0..9."""

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64]


def load_sample(split: Literal["test_slice", "train_sample"] = "test_slice") -> Sample:
    """The images that come with the package, for demonstrations and tests."""
    assets, name = files("lapis") / "assets", f"cifar10_{split}"
    picture = decode_image((assets / f"{name}.webp").read_bytes(), f"{name}.webp")
    tiles = picture.reshape(-1, SIDE, TILES, SIDE, 3).swapaxes(1, 2).reshape(-1, SIDE, SIDE, 3)
    digits = (assets / f"{name}.labels").read_text().strip()
    return Sample(np.ascontiguousarray(tiles), np.array([int(digit) for digit in digits]))


def named_image(name: str) -> tuple[Pixels, str]:
    """The pixels (32, 32, 3) and the class of the packaged image that `sample:N` names."""
    images, labels = load_sample()
    number = name.removeprefix(SAMPLE)
    if not number.isdecimal() or int(number) >= len(images):
        raise LapisError(f"{name!r} is not a packaged image; use {SAMPLE}0 to {SAMPLE}{len(images) - 1}")
    return images[int(number)], CIFAR10_CLASSES[labels[int(number)]]
