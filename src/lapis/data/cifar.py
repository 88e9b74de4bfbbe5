"""CIFAR-10 and CIFAR-100 in their official binary and python layouts."""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from lapis.data.images import ArrayImages, Labels
from lapis.errors import LapisError
from lapis.preprocess import Pixels

Split = Literal["train", "test"]

SIDE = 32
PIXEL_BYTES = 3 * SIDE * SIDE


@dataclass(frozen=True)
class Layout:
    """A folder of one official archive.

    A binary record holds `label_bytes` labels, of which the last is used, and 3072 pixels.
    """

    folder: str
    train: tuple[str, ...]
    test: str
    classes: int
    names: str
    label_bytes: int
    label_key: bytes = b"labels"
    names_key: bytes = b"label_names"

    @property
    def binary(self) -> bool:
        return self.test.endswith(".bin")


BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
LAYOUTS = {
    "cifar10": (
        Layout("cifar-10-batches-bin", tuple(f"{b}.bin" for b in BATCHES), "test_batch.bin", 10, "batches.meta.txt", 1),
        Layout("cifar-10-batches-py", BATCHES, "test_batch", 10, "batches.meta", 1),
    ),
    "cifar100": (
        Layout("cifar-100-binary", ("train.bin",), "test.bin", 100, "fine_label_names.txt", 2),
        Layout("cifar-100-python", ("train",), "test", 100, "meta", 2, b"fine_labels", b"fine_label_names"),
    ),
}


def find_layout(folder: Path, dataset: str | None = None) -> tuple[Path, Layout] | None:
    """The CIFAR folder at or directly under `folder`, of one dataset or of either."""
    for name, layouts in LAYOUTS.items():
        for layout in layouts if dataset in (None, name) else ():
            for candidate in (folder / layout.folder, folder):
                if (candidate / layout.test).is_file() and candidate.name == layout.folder:
                    return candidate, layout
    return None


def load_cifar(folder: Path, layout: Layout, split: Split) -> ArrayImages:
    """All images of a split, in memory: 150 MB for training, 30 MB for testing."""
    names = layout.train if split == "train" else (layout.test,)
    parts = [_read(folder / name, layout) for name in names]
    labels = np.concatenate([part[0] for part in parts])
    pixels = np.concatenate([part[1] for part in parts])
    return ArrayImages(pixels, labels, _class_names(folder, layout))


def _read(path: Path, layout: Layout) -> tuple[Labels, Pixels]:
    """The labels (n,) and pixels (n, 32, 32, 3) of one file."""
    planes: Any
    labels: Any
    if layout.binary:
        data, record = np.frombuffer(_bytes(path), np.uint8), layout.label_bytes + PIXEL_BYTES
        if not data.size or data.size % record:
            raise LapisError(
                f"{path} has {data.size} bytes, not a multiple of {record}: it is cut short; fetch it again"
            )
        records = data.reshape(-1, record)
        labels, planes = records[:, layout.label_bytes - 1].tolist(), records[:, layout.label_bytes :]
    else:
        table = _unpickle(path)
        labels, planes = table.get(layout.label_key), table.get(b"data")
        if not isinstance(planes, np.ndarray) or planes.dtype != np.uint8 or planes.shape[1:] != (PIXEL_BYTES,):
            raise LapisError(f"{path} is not a CIFAR batch: it has no uint8 array 'data' of rows of {PIXEL_BYTES}")
        numbers = isinstance(labels, list) and all(type(label) is int for label in labels)
        if not numbers or not len(labels) == len(planes) > 0:
            raise LapisError(f"{path} is not a CIFAR batch: it has no list {layout.label_key.decode()!r} of numbers")
    if wrong := [label for label in labels if not 0 <= label < layout.classes]:
        raise LapisError(
            f"{path} is not a CIFAR batch: it has the label {wrong[0]}; labels lie in 0..{layout.classes - 1}"
        )
    pixels = planes.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
    return np.asarray(labels, np.int64), np.ascontiguousarray(pixels)


def _class_names(folder: Path, layout: Layout) -> tuple[str, ...]:
    path = folder / layout.names
    if not path.is_file():  # names are only for display
        return tuple(str(index) for index in range(layout.classes))
    if layout.binary:
        names = _bytes(path).decode("utf-8", "replace").split()
    else:
        found = _unpickle(path).get(layout.names_key, [])
        if not isinstance(found, list) or not all(isinstance(name, bytes) for name in found):
            raise LapisError(f"{path} holds no list of class names; fetch the archive again")
        names = [name.decode("utf-8", "replace") for name in found]
    if len(names) != layout.classes:
        raise LapisError(f"{path} names {len(names)} classes, not {layout.classes}")
    return tuple(names)


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise LapisError(f"cannot read {path}: {error.strerror}; fetch the archive again") from error


class _ArraysOnly(pickle.Unpickler):
    """Reads the arrays and lists of a CIFAR batch and refuses to call anything else."""

    ALLOWED = ("_reconstruct", "ndarray", "dtype")

    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] == "numpy" and name in self.ALLOWED:
            # The official files use numpy's module name of 2009; the function is here now.
            return _RECONSTRUCT if name == "_reconstruct" else getattr(np, name)
        if (module, name) == ("_codecs", "encode"):
            return str.encode
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


_RECONSTRUCT = np.zeros(1).__reduce__()[0]


def _unpickle(path: Path) -> dict[bytes, Any]:
    file = io.BytesIO(_bytes(path))
    try:
        table = _ArraysOnly(file, encoding="bytes").load()
    except Exception as error:  # a damaged pickle raises many kinds
        raise LapisError(f"{path} is not a CIFAR batch: {error}") from error
    if not isinstance(table, dict):
        raise LapisError(f"{path} is not a CIFAR batch: it holds a {type(table).__name__}")
    return table
