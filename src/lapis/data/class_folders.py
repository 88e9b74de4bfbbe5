"""Images in folders, one folder per class: any such tree, or a person's own, checked and split for testing."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from lapis.data.cifar import Split, find_layout
from lapis.data.images import FileImages, Images
from lapis.deploy.schema import MAX_CLASS_NAME, MAX_CLASSES
from lapis.errors import LapisError
from lapis.preprocess import UnreadableImageError

SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".ppm", ".gif", ".tif", ".tiff"})
SPLIT_FOLDERS: dict[Split, tuple[str, ...]] = {"train": ("train",), "test": ("val", "validation", "test")}
# Of each class, this share is held out for testing if the folder has no val/.
HELD_OUT_SHARE = 0.2
# With fewer images of a class, one to test on would leave too few to learn from.
LEAST_IMAGES = 4
LAYOUT = "make one folder per class, with its images inside: FOLDER/cat/1.jpg, FOLDER/dog/2.jpg"


def find_class_folders(folder: Path) -> list[Path]:
    """The folders that hold images, sorted by name."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if path.is_dir() and any(is_image(file) for file in path.iterdir()))


def load_folder(folder: Path) -> FileImages:
    """Every image under `folder`'s class folders.

    If all folder names are numbers, the number is the class; else classes are numbered from 0 in order of the names.
    """
    images = load_named_folder(folder)
    if not images.classes:
        raise LapisError(f"{folder} has no folders with images; expected one folder per class, with its images inside")
    if not all(name.isdecimal() for name in images.classes):
        return images
    numbers = [int(name) for name in images.classes]
    twice = [name for name, number in zip(images.classes, numbers, strict=True) if numbers.count(number) > 1]
    if twice:
        raise LapisError(f"{folder} has the class folders {' and '.join(twice[:2])}, which are one number; rename one")
    if numbers[-1] >= MAX_CLASSES:
        raise LapisError(f"{folder} has the class number {numbers[-1]}; networks have at most {MAX_CLASSES} classes")
    classes = tuple(map(str, range(numbers[-1] + 1)))
    return FileImages(images.paths, np.asarray(numbers, np.int64)[images.labels], classes)


def load_named_folder(folder: Path) -> FileImages:
    """Every image under `folder`'s class folders. Classes have the folders' names and their order, numbers by size."""
    folders = find_class_folders(folder)
    if all(path.name.isdecimal() for path in folders):
        folders = sorted(folders, key=lambda path: int(path.name))
    files = [sorted(file for file in path.iterdir() if is_image(file)) for path in folders]
    labels = np.repeat(np.arange(len(folders)), [len(part) for part in files])
    return FileImages(tuple(chain.from_iterable(files)), labels, tuple(path.name for path in folders))


def is_image(path: Path) -> bool:
    """Whether the name is that of an image that is not hidden."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


@dataclass(frozen=True)
class SplitImages:
    """Images to train on and to test on, with the same classes; `split` is whether the latter were set aside here."""

    train: FileImages
    held_out: FileImages
    split: bool

    @property
    def classes(self) -> tuple[str, ...]:
        return self.train.classes

    def counts(self) -> dict[str, tuple[int, int]]:
        """How many images of each class are trained on and held out."""
        parts = [np.bincount(images.labels, minlength=len(self.classes)) for images in (self.train, self.held_out)]
        return {name: (int(parts[0][at]), int(parts[1][at])) for at, name in enumerate(self.classes)}

    def fingerprint(self) -> str:
        """Changes if an image is added, removed, replaced by one of another size, or moved to another class or part."""
        import hashlib  # only own images need it

        digest = hashlib.sha256()
        for part in (self.train, self.held_out):
            for path, label in zip(part.paths, part.labels, strict=True):
                digest.update(f"{part.classes[label]}/{path.name} {path.stat().st_size}\n".encode(errors="replace"))
            digest.update(b"\n")
        return digest.hexdigest()


def open_class_folders(folder: Path) -> SplitImages:
    """The images of FOLDER/train/CLASS and FOLDER/val/CLASS, or of FOLDER/CLASS with a part of each class held out.

    `validation` and `test` are other names for `val`. Every class needs a few images; each problem is an error.
    """
    if not folder.is_dir():
        raise LapisError(f"{folder} is not a folder; {LAYOUT}")
    base = folder / "train" if find_class_folders(folder / "train") else folder
    if not find_class_folders(base):
        loose = sum(is_image(path) for path in folder.iterdir())
        instead = f", but {loose} images that are in no class" if loose else ""
        if find_layout(folder) is not None:
            instead = ", but CIFAR's own files: use `lapis train` with a recipe of CIFAR"
        raise LapisError(f"{folder} has no folders with images{instead}; {LAYOUT}")
    whole = load_named_folder(base)
    _check_classes(base, whole)
    tested = next((folder / name for name in SPLIT_FOLDERS["test"] if find_class_folders(folder / name)), None)
    if tested is None:
        return SplitImages(*_split(whole), split=True)
    return SplitImages(whole, _matched(tested, whole), split=False)


def images_below(folder: Path) -> list[Path]:
    """Every image in the folder and in those below it, sorted, without hidden ones."""
    found = []
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(place, name) for name in names if is_image(Path(name))]
    return sorted(found)


def unreadable(images: Images, progress: Callable[[int], None] = lambda done: None) -> dict[int, str]:
    """Why images cannot be read, by their index."""
    found = {}
    for index in range(len(images)):
        try:
            images[index]
        except UnreadableImageError as error:
            found[index] = str(error)
        progress(index + 1)
    return found


def _split(images: FileImages) -> tuple[FileImages, FileImages]:
    """(training, held-out) images: of each class the same share, chosen by a hash of the file's name.

    So the choice is always the same, and an image stays where it is when a few others are added.
    """
    import hashlib

    held = np.zeros(len(images), bool)
    hashes = [hashlib.sha256(path.name.encode(errors="replace")).digest() for path in images.paths]
    for label in range(len(images.classes)):
        own = np.flatnonzero(images.labels == label)
        order = sorted(own, key=lambda index: hashes[index])
        held[order[: max(1, round(HELD_OUT_SHARE * len(own)))]] = True
    return images.select(np.flatnonzero(~held)), images.select(np.flatnonzero(held))


def _matched(folder: Path, train: FileImages) -> FileImages:
    """The images of a folder for testing, with the labels of the training images."""
    tested = load_named_folder(folder)
    if len(tested.classes) != len(train.classes) or set(tested.classes) != set(train.classes):
        odd = sorted(set(tested.classes) ^ set(train.classes))[0]
        where, other = (folder.name, "the training images") if odd in tested.classes else ("training", folder)
        raise LapisError(f"class {odd!r} is in {where} but not in {other}; both need the same classes")
    place = [train.classes.index(name) for name in tested.classes]
    return FileImages(tested.paths, np.asarray(place, np.int64)[tested.labels], train.classes)


def _check_classes(folder: Path, images: FileImages) -> None:
    found = np.bincount(images.labels, minlength=len(images.classes)).tolist()
    counts = dict(zip(images.classes, found, strict=True))
    for path in sorted(folder.iterdir()):
        # A folder with neither images nor folders is a class that somebody forgot to fill.
        if path.is_dir() and path.name[0] not in "._" and not any(inner.is_dir() for inner in path.iterdir()):
            counts.setdefault(path.name, 0)
    few = [f"{name!r} has {count}" for name, count in counts.items() if count < LEAST_IMAGES]
    if few:
        raise LapisError(
            f"{folder} has classes with too few images: {', '.join(few[:5])}{' and more' * (len(few) > 5)}; "
            f"every class needs at least {LEAST_IMAGES}: add images, or remove the folder"
        )
    if len(images.classes) < 2:
        raise LapisError(f"{folder} has one class, {images.classes[0]!r}; a classifier needs at least two folders")
    for name in images.classes:
        if len(name) > MAX_CLASS_NAME or any("\ud800" <= letter <= "\udfff" for letter in name):
            raise LapisError(f"the class folder {name!r} in {folder} has a name that is not text; rename it")
