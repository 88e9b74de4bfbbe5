"""Find a dataset, in a folder or by a download into the cache, and open its images."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lapis._util.files import new_folder
from lapis._util.terminal import echo
from lapis.data.cifar import Split, find_layout, load_cifar
from lapis.data.class_folders import SPLIT_FOLDERS, find_class_folders, load_folder
from lapis.data.images import Images, Labels, spread
from lapis.data.packaged import packaged_images
from lapis.errors import LapisError
from lapis.preprocess import Pixels, Preprocess

TIMEOUT_SECONDS = 30
HOW_TO_GET = (
    "unpack the official CIFAR archive there (cifar-10-binary.tar.gz or cifar-100-binary.tar.gz), or for ImageNet lay "
    "out train/CLASS/*.JPEG and val/CLASS/*.JPEG; then pass its path with --data or LAPIS_DATA"
)


# The official archives, and the MD5 sums that their authors publish.
ARCHIVES = {
    "cifar10": ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),
    "cifar100": ("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),
}


def resolve_data(folder: Path | None, dataset: str | None) -> Path:
    """The folder to read: `folder`, else LAPIS_DATA, else the cache, where CIFAR is downloaded once."""
    if folder is None and os.environ.get("LAPIS_DATA"):
        folder = Path(os.environ["LAPIS_DATA"])
    if folder is not None:
        return folder
    if dataset not in ARCHIVES:
        raise LapisError(f"no data folder was given; {HOW_TO_GET}")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lapis"
    if find_layout(cache, dataset) is None:
        echo(f"downloading {dataset} from {ARCHIVES[dataset][0]} to {cache}", error=True)
        download(*ARCHIVES[dataset], cache)
    return cache


def download(url: str, md5: str, folder: Path) -> None:
    """Fetch, verify, unpack; nothing that fails its checksum is unpacked."""
    with new_folder(folder), tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as temporary:
        file = Path(temporary) / "archive.tar.gz"
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer, file.open("wb") as out:
                shutil.copyfileobj(answer, out)
        except (OSError, urllib.error.URLError) as error:
            raise LapisError(f"cannot download {url}: {error}; with no network, {HOW_TO_GET}") from error
        found = hashlib.md5(file.read_bytes(), usedforsecurity=False).hexdigest()
        if found != md5:
            raise LapisError(f"{url} has MD5 {found}, its authors publish {md5}; try again later")
        unpacked = Path(temporary) / "unpacked"
        try:
            with tarfile.open(file) as tar:
                tar.extractall(unpacked, filter="data")
        except (OSError, tarfile.TarError) as error:
            raise LapisError(f"cannot unpack {url}: {error}") from error
        for item in unpacked.iterdir():
            if not (folder / item.name).exists():
                item.rename(folder / item.name)


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
    raise LapisError(
        f"{folder} holds no {split} images that Lapis knows: no {dataset or 'CIFAR batches'} and no class folders "
        f"in {' or '.join(SPLIT_FOLDERS[split])}; {HOW_TO_GET}"
    )


def some_images(folder: Path | None, count: int) -> Images:
    """`count` test images of a folder, evenly spread; of the packaged CIFAR-10 sample where there is no folder."""
    return spread(packaged_images() if folder is None else open_images(folder, "test"), count)


def resized_batches(images: Images, preprocess: Preprocess, batch: int) -> Iterator[tuple[Pixels, Labels]]:
    """Batches of (pixels (n, S, S, 3), labels (n,)), resized for a network."""
    for start in range(0, len(images), batch):
        labels = images.labels[start : start + batch]
        yield np.stack([preprocess.resize(images[start + at]) for at in range(len(labels))]), labels
