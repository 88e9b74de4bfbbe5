"""From a folder, or a dataset's name, to its images."""

from __future__ import annotations

from pathlib import Path

from lapis.data.cifar import Split, find_layout, load_cifar
from lapis.data.folder import class_folders, load_folder
from lapis.data.images import Images
from lapis.data.shards import find_shards, load_shards
from lapis.errors import LapisError

SPLIT_FOLDERS: dict[Split, tuple[str, ...]] = {"train": ("train",), "test": ("val", "validation", "test")}


def open_images(folder: Path, split: Split, dataset: str | None = None) -> Images:
    """The images of a split under `folder`, whatever layout lies there.

    Known layouts: CIFAR-10/100 (binary or python), tar shards, folders of classes. The last two are looked for in
    `train` or `val` (`validation`, `test`); images for testing may also lie in `folder` itself.
    """
    if not folder.is_dir():
        raise LapisError(f"{folder} is not a folder; {HOW_TO_GET}")
    found = find_layout(folder, dataset)
    if found is not None:
        return load_cifar(*found, split)
    places = [folder / name for name in SPLIT_FOLDERS[split]]
    for place in [*places, folder] if split == "test" else places:
        shards = find_shards(place)
        if shards:
            return load_shards(shards)
        if class_folders(place):
            return load_folder(place)
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
