"""Folders of pictures that tests share, made from the packaged images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from lapis.data.packaged import CIFAR10_CLASSES, packaged_images


def write_class_folders(folder: Path, count: int, classes: tuple[str, ...] = CIFAR10_CLASSES) -> Path:
    """One folder per class of CIFAR-10, with `count` images each."""
    sample = packaged_images()
    images, labels = sample.pixels, sample.labels
    for name in classes:
        (folder / name).mkdir(parents=True)
        for index in np.flatnonzero(labels == CIFAR10_CLASSES.index(name))[:count]:
            Image.fromarray(images[index]).save(folder / name / f"{index}.png")
    return folder
