"""Images in a tree of folders, one folder per class."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lapis.data.images import FileImages, numbered_classes
from lapis.errors import LapisError

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".ppm", ".gif", ".tif", ".tiff"})


def find_class_folders(folder: Path) -> list[Path]:
    """The folders that hold images, sorted by name."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_dir() and any(is_image(file) for file in path.iterdir()))


def load_folder(folder: Path) -> FileImages:
    """Every image under `folder`'s class folders.

    If all folder names are numbers, the number is the class; else classes are numbered from 0 in order of the names.
    """
    folders = find_class_folders(folder)
    if not folders:
        raise LapisError(f"{folder} has no folders with images; expected one folder per class, with its images inside")
    names = [path.name for path in folders]
    if all(name.isdecimal() for name in names):
        numbers = [int(name) for name in names]
        classes = numbered_classes(numbers, folder)
    else:
        numbers, classes = list(range(len(names))), tuple(names)
    return _load(folders, numbers, classes)


def load_named_folder(folder: Path) -> FileImages:
    """Every image under `folder`'s class folders. Classes have the folders' names and their order, numbers by size."""
    folders = find_class_folders(folder)
    if all(path.name.isdecimal() for path in folders):
        folders = sorted(folders, key=lambda path: int(path.name))
    return _load(folders, list(range(len(folders))), tuple(path.name for path in folders))


def _load(folders: list[Path], numbers: list[int], classes: tuple[str, ...]) -> FileImages:
    paths: list[Path] = []
    labels: list[int] = []
    for path, number in zip(folders, numbers, strict=True):
        files = sorted(file for file in path.iterdir() if is_image(file))
        paths += files
        labels += [number] * len(files)
    return FileImages(tuple(paths), np.asarray(labels, np.int64), classes)


def is_image(path: Path) -> bool:
    """Whether the name is that of an image that is not hidden."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
