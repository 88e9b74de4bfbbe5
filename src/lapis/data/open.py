"""Open the images of a folder or of a named dataset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from lapis.data.cifar import Split, find_layout, load_cifar
from lapis.data.cifar_sample import CIFAR10_CLASSES, load_sample
from lapis.data.folder import find_class_folders, load_folder
from lapis.data.images import ArrayImages, Images, Labels, spread
from lapis.data.shards import find_shards, load_shards
from lapis.errors import LapisError
from lapis.preprocess import Pixels, Preprocess, UnreadableImageError

SPLIT_FOLDERS: dict[Split, tuple[str, ...]] = {"train": ("train",), "test": ("val", "validation", "test")}


def open_images(folder: Path, split: Split, dataset: str | None = None) -> Images:
    """The images of a split in `folder`, in any known layout.

    Known layouts: CIFAR-10/100 (binary or python), tar shards, folders of classes. The last two are searched in
    `train` or `val` (`validation`, `test`); test images may also be in `folder` itself.
    """
    if not folder.is_dir():
        raise LapisError(f"{folder} is not a folder; {HOW_TO_GET}")
    found = find_layout(folder, dataset)
    if found is not None:
        return load_cifar(*found, split)
    folders = [folder / name for name in SPLIT_FOLDERS[split]]
    for candidate in [*folders, folder] if split == "test" else folders:
        shards = find_shards(candidate)
        if shards:
            return load_shards(shards)
        if find_class_folders(candidate):
            return load_folder(candidate)
    wanted = "CIFAR batches, " if dataset is None else f"{dataset}, "
    raise LapisError(
        f"{folder} holds no {split} images that Lapis knows: no {wanted}no tar shards and no class folders "
        f"in {' or '.join(SPLIT_FOLDERS[split])}; {HOW_TO_GET}"
    )


HOW_TO_GET = (
    "unpack the official CIFAR archive there (cifar-10-binary.tar.gz or cifar-100-binary.tar.gz), or for ImageNet lay "
    "out train/CLASS/*.JPEG and val/CLASS/*.JPEG, or tar shards under train/ and val/; then pass its path with --data "
    "or LAPIS_DATA"
)


def some_images(folder: Path | None, count: int) -> Images:
    """`count` test images of a folder, evenly spread; of the packaged CIFAR-10 sample where there is no folder."""
    return spread(all_images(folder), count)


def all_images(folder: Path | None) -> Images:
    """All test images of a folder; the packaged CIFAR-10 sample where there is no folder."""
    return packaged_images() if folder is None else open_images(folder, "test")


def held_out(images: Images, trained: Sequence[int]) -> Images:
    """The images that are not those of the packaged sample with the numbers `trained`, by their pixels.

    So the slice is recognised in any folder: in CIFAR's own files, whose test set starts with it, or as pictures.
    """
    if not trained:
        return images
    known = {pixels.tobytes() for number, pixels in enumerate(packaged_images().pixels) if number in set(trained)}

    def seen(index: int) -> bool:
        try:
            return images.read(index).tobytes() in known
        except UnreadableImageError:
            return False  # whoever reads it next reports it

    kept = np.array([index for index in range(len(images)) if not seen(index)], np.int64)
    if not len(kept):
        raise LapisError(
            f"the network was trained on all of these {len(images)} images, so they cannot test it; give others: --data"
        )
    return images.select(kept)


def packaged_images() -> ArrayImages:
    """The packaged sample of CIFAR-10 test images."""
    pixels, labels = load_sample()
    return ArrayImages(pixels, labels, CIFAR10_CLASSES)


def resized_batches(images: Images, preprocess: Preprocess, batch: int) -> Iterator[tuple[Pixels, Labels]]:
    """Batches of (pixels (n, S, S, 3), labels (n,)), resized for a network."""
    for start in range(0, len(images), batch):
        stop = min(start + batch, len(images))
        pixels = np.stack([preprocess.resize(images.read(index)) for index in range(start, stop)])
        yield pixels, images.labels[start:stop]
