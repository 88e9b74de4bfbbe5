"""Images in tar shards, in webdataset's layout: the members NAME.jpg and NAME.cls are one image and its label.

The shards are indexed once and then read in any order, so that sampling, resuming and splitting over processes work as
for other images.
"""

from __future__ import annotations

import tarfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lapis._util.files import parse_json
from lapis.data.folder import SUFFIXES
from lapis.data.images import Indices, Labels, check_labels, numbered_classes
from lapis.errors import LapisError
from lapis.preprocess import Pixels, UnreadableImageError, decode_image

LABEL_SUFFIXES = (".cls", ".json")


@dataclass(frozen=True)
class ShardImages:
    """Image i is `sizes[i]` bytes at `offsets[i]` of `shards[shard_of[i]]`."""

    shards: tuple[Path, ...]
    shard_of: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    labels: Labels
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        check_labels(self.labels, len(self.offsets), len(self.classes))

    def __len__(self) -> int:
        return len(self.offsets)

    def read(self, index: int) -> Pixels:
        shard = self.shards[self.shard_of[index]]
        where = f"{shard} at byte {self.offsets[index]}"
        try:
            with shard.open("rb") as file:
                file.seek(int(self.offsets[index]))
                data = file.read(int(self.sizes[index]))
        except OSError as error:
            raise UnreadableImageError(where, error.strerror or str(error)) from error
        return decode_image(data, where)

    def select(self, indices: Indices) -> ShardImages:
        places = (self.shard_of[indices], self.offsets[indices], self.sizes[indices])
        return ShardImages(self.shards, *places, self.labels[indices], self.classes)


def find_shards(folder: Path) -> list[Path]:
    """The tar files in `folder`, sorted by name."""
    return sorted(folder.glob("*.tar")) if folder.is_dir() else []


def load_shards(shards: list[Path]) -> ShardImages:
    """Index every image of the shards; a label is a number in NAME.cls, or 'label' or 'cls' in NAME.json."""
    rows: list[tuple[int, int, int, int]] = []
    for number, shard in enumerate(shards):
        rows += [(number, *row) for row in _index(shard)]
    if not rows:
        raise LapisError(f"{shards[0]} and {len(shards) - 1} more shards hold no image with a label")
    classes = numbered_classes([row[-1] for row in rows], shards[0].parent)
    shard_of, offsets, sizes, labels = (np.asarray(column, np.int64) for column in zip(*rows, strict=True))
    return ShardImages(tuple(shards), shard_of, offsets, sizes, labels, classes)


def _index(shard: Path) -> list[tuple[int, int, int]]:
    """(offset, size, label) of each image of a shard, in the order of the tar file."""
    images: dict[str, tuple[int, int]] = {}
    labels: dict[str, int] = {}
    try:
        with tarfile.open(shard, "r:") as tar:
            for member in tar:
                name, suffix = _split(member.name)
                # A sparse member of a few bytes may claim any size.
                if not member.isreg() or member.issparse():
                    continue
                if suffix in SUFFIXES:
                    images[name] = (member.offset_data, member.size)
                elif suffix in LABEL_SUFFIXES:
                    file = tar.extractfile(member)
                    labels[name] = _label(shard, member.name, file.read() if file else b"")
    except LapisError:
        raise
    except (OSError, tarfile.TarError, ValueError, OverflowError) as error:  # the last two for odd headers
        raise LapisError(f"cannot read shard {shard}: {error}; it must be an uncompressed tar") from error
    missing = sorted(images.keys() - labels.keys())
    if missing:
        raise LapisError(
            f"{shard}: {len(missing)} images have no label, the first is {missing[0]}; add {missing[0]}.cls"
        )
    return [(*images[name], labels[name]) for name in images]


def _split(member: str) -> tuple[str, str]:
    """Webdataset's rule: the key ends at the first dot of the last path part."""
    folder, _, last = member.rpartition("/")
    key, dot, suffix = last.partition(".")
    return f"{folder}/{key}", (dot + suffix).lower()


def _label(shard: Path, member: str, data: bytes) -> int:
    with suppress(LapisError):
        value: Any = parse_json(data, member)
        if isinstance(value, dict):
            value = value.get("label", value.get("cls"))
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    raise LapisError(f"{shard}: {member} holds no class number; write the class index as text, for example 17")
