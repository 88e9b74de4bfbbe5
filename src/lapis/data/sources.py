"""Find a dataset: in the given folder, in the folder of LAPIS_DATA, or by a download into the cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from lapis._util.files import new_folder
from lapis._util.terminal import echo
from lapis.data.cifar import find_layout
from lapis.data.open import HOW_TO_GET
from lapis.errors import LapisError

CHUNK = 1 << 20
TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class Archive:
    """An official archive and the MD5 sum that its authors publish."""

    url: str
    md5: str


ARCHIVES = {
    "cifar10": Archive("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),
    "cifar100": Archive("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),
}


def resolve_data(folder: Path | None, dataset: str | None) -> Path:
    """The folder to read: `folder`, else LAPIS_DATA, else the cache, where CIFAR is downloaded once."""
    if folder is None and os.environ.get("LAPIS_DATA"):
        folder = Path(os.environ["LAPIS_DATA"])
    if folder is not None:
        if not folder.is_dir():
            raise LapisError(f"{folder} is not a folder; {HOW_TO_GET}")
        return folder
    if dataset not in ARCHIVES:
        raise LapisError(f"no data folder was given; {HOW_TO_GET}")
    cache = cache_folder()
    if find_layout(cache, dataset) is None:
        echo(f"downloading {dataset} from {ARCHIVES[dataset].url} to {cache}", error=True)
        download(ARCHIVES[dataset], cache)
    return cache


def cache_folder() -> Path:
    """Where downloads are kept: lapis/ under XDG_CACHE_HOME, or under ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lapis"


def download(archive: Archive, folder: Path) -> None:
    """Fetch, verify, unpack; nothing that fails its checksum is unpacked."""
    with new_folder(folder), tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as temporary:
        file = Path(temporary) / "archive.tar.gz"
        try:
            with urllib.request.urlopen(archive.url, timeout=TIMEOUT_SECONDS) as answer, file.open("wb") as out:
                shutil.copyfileobj(answer, out, CHUNK)
        except (OSError, urllib.error.URLError) as error:
            raise LapisError(f"cannot download {archive.url}: {error}; with no network, {HOW_TO_GET}") from error
        found = _md5(file)
        if found != archive.md5:
            raise LapisError(f"{archive.url} has MD5 {found}, its authors publish {archive.md5}; try again later")
        unpacked = Path(temporary) / "unpacked"
        try:
            with tarfile.open(file) as tar:
                tar.extractall(unpacked, filter="data")
        except (OSError, tarfile.TarError) as error:
            raise LapisError(f"cannot unpack {archive.url}: {error}") from error
        for item in unpacked.iterdir():
            target = folder / item.name
            if not target.exists():
                item.rename(target)


def _md5(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(CHUNK):
            digest.update(block)
    return digest.hexdigest()
