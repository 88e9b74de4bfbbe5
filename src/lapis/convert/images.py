"""Images to convert and verify on: read, resized as a network wants them, in batches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lapis.data.images import ArrayImages, Images, spread
from lapis.data.open import open_images
from lapis.data.slice import CIFAR10_CLASSES, load_slice
from lapis.preprocess import Pixels, Preprocess


def find_images(data: Path | None, count: int) -> Images:
    """`count` test images of a folder, evenly spread; of the packaged CIFAR-10 slice where there is no folder."""
    if data is None:
        pixels, labels = load_slice()
        return spread(ArrayImages(pixels, labels, CIFAR10_CLASSES), count)
    return spread(open_images(data, "test"), count)


def prepared(images: Images, preprocess: Preprocess, classes: int, batch: int) -> Iterator[tuple[Pixels, Any]]:
    """Batches of (pixels (n, S, S, 3), labels); labels are None where the images have other classes."""
    fits = len(images.classes) == classes
    for start in range(0, len(images), batch):
        stop = min(start + batch, len(images))
        pixels = np.stack([preprocess.resize(images.read(index)) for index in range(start, stop)])
        yield pixels, images.labels[start:stop] if fits else None
