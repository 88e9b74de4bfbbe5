"""Open the images of a folder or of a named dataset."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lapis.data.cifar import Split, find_layout, load_cifar
from lapis.data.cifar_sample import CIFAR10_CLASSES, load_sample
from lapis.data.class_folders import SPLIT_FOLDERS, find_class_folders, load_folder
from lapis.data.images import ArrayImages, Images, Labels, spread
from lapis.errors import LapisError
from lapis.preprocess import Pixels, Preprocess


def open_images(folder: Path, split: Split, dataset: str | None = None) -> Images:
    """The images of a split in `folder`, in any known layout.

    Known layouts: CIFAR-10/100 (binary or python), and folders of classes in `train` or `val` (`validation`, `test`);
    test images may also be in `folder` itself.
    """
    if not folder.is_dir():
        raise LapisError(f"{folder} is not a folder; {HOW_TO_GET}")
    found = find_layout(folder, dataset)
    if found is not None:
        return load_cifar(*found, split)
    folders = [folder / name for name in SPLIT_FOLDERS[split]]
    for candidate in [*folders, folder] if split == "test" else folders:
        if find_class_folders(candidate):
            return load_folder(candidate)
    wanted = "CIFAR batches " if dataset is None else f"{dataset} "
    raise LapisError(
        f"{folder} holds no {split} images that Lapis knows: no {wanted}and no class folders "
        f"in {' or '.join(SPLIT_FOLDERS[split])}; {HOW_TO_GET}"
    )


HOW_TO_GET = (
    "unpack the official CIFAR archive there (cifar-10-binary.tar.gz or cifar-100-binary.tar.gz), or for ImageNet lay "
    "out train/CLASS/*.JPEG and val/CLASS/*.JPEG; then pass its path with --data "
    "or LAPIS_DATA"
)


def some_images(folder: Path | None, count: int) -> Images:
    """`count` test images of a folder, evenly spread; of the packaged CIFAR-10 sample where there is no folder."""
    return spread(packaged_images() if folder is None else open_images(folder, "test"), count)


def packaged_images(split: Split = "test") -> ArrayImages:
    """The packaged sample of CIFAR-10 images."""
    pixels, labels = load_sample("test_slice" if split == "test" else "train_sample")
    return ArrayImages(pixels, labels, CIFAR10_CLASSES)


def resized_batches(images: Images, preprocess: Preprocess, batch: int) -> Iterator[tuple[Pixels, Labels]]:
    """Batches of (pixels (n, S, S, 3), labels (n,)), resized for a network."""
    for start in range(0, len(images), batch):
        stop = min(start + batch, len(images))
        pixels = np.stack([preprocess.resize(images.read(index)) for index in range(start, stop)])
        yield pixels, images.labels[start:stop]
