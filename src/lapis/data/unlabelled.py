"""Images without labels, for distillation: the images of any folders, some of them held aside.

The labels of the images held aside are the answers of the dense network, so that a run's accuracy on them is its
agreement with that network. The list is kept in one file beside the run: a resumed run sees the same images, whatever
has happened to the folders in between.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lapis._util.files import read_json, write_text
from lapis.data.class_folders import images_below, unreadable
from lapis.data.images import FileImages
from lapis.errors import LapisError

# Of all images, one in twenty is held aside, but no more than a test needs.
HELD_SHARE, MOST_HELD = 0.05, 600
LEAST_IMAGES = 40


@dataclass(frozen=True)
class UnlabelledImages:
    """Images to learn from, and images that are held aside; `unreadable` says why others were left out."""

    train: FileImages
    held_aside: FileImages
    unreadable: tuple[str, ...] = ()


def find_images(folders: Sequence[Path]) -> list[Path]:
    """Every image file in these folders and the folders below them, sorted; an image named twice counts once."""
    found: set[Path] = set()
    for folder in folders:
        if not folder.is_dir():
            raise LapisError(f"--images {folder} is not a folder; name folders that hold images, at any depth")
        inside = {path.resolve() for path in images_below(folder) if path.is_file()}
        if not inside:
            raise LapisError(f"--images {folder} holds no images; they are found by their names, such as .jpg or .png")
        found |= inside
    if len(found) < LEAST_IMAGES:
        raise LapisError(
            f"{len(found)} images were found; distillation needs at least {LEAST_IMAGES}, better thousands"
        )
    return sorted(found)


def split_images(paths: Sequence[Path], classes: Sequence[str], seed: int = 0) -> UnlabelledImages:
    """Hold some of the images aside, drawn by `seed`; labels are 0 until `save_list` knows the answers."""
    order = np.random.default_rng(seed).permutation(len(paths))
    held = max(1, min(MOST_HELD, round(HELD_SHARE * len(paths))))
    train, aside = (_images([paths[i] for i in part], classes) for part in (order[held:], order[:held]))
    return UnlabelledImages(train, aside)


def drop_unreadable(images: UnlabelledImages, progress: Callable[[int], None]) -> UnlabelledImages:
    """Without the images that cannot be decoded."""
    both = (images.train, images.held_aside)
    bad = [unreadable(both[0], progress), unreadable(both[1], lambda done: progress(len(both[0]) + done))]
    train, held = (part.select(np.delete(np.arange(len(part)), list(why))) for part, why in zip(both, bad, strict=True))
    if not len(train) or not len(held):
        raise LapisError("too few of the images can be read; repair them or name other folders")
    return UnlabelledImages(train, held, (*bad[0].values(), *bad[1].values()))


def save_list(file: Path, images: UnlabelledImages) -> None:
    """Write which images are used, and the dense network's answer to each that is held aside."""
    content = {
        "classes": list(images.train.classes),
        "train": [str(path) for path in images.train.paths],
        "held_aside": [str(path) for path in images.held_aside.paths],
        "answers": [int(answer) for answer in images.held_aside.labels],
        "unreadable": list(images.unreadable),
    }
    write_text(file, json.dumps(content, indent=0) + "\n")


def load_list(file: Path) -> UnlabelledImages:
    """What `save_list` wrote."""
    content = read_json(file)
    try:
        classes = tuple(map(str, content["classes"]))
        train, held = ([Path(path) for path in content[name]] for name in ("train", "held_aside"))
        answers = np.asarray(content["answers"], np.int64)
        left_out = tuple(map(str, content["unreadable"]))
    except (KeyError, TypeError, ValueError) as error:
        raise LapisError(f"{file} is not a list of images that lapis distill wrote ({error}); start anew") from error
    return UnlabelledImages(_images(train, classes), FileImages(tuple(held), answers, classes), left_out)


def _images(paths: Sequence[Path], classes: Sequence[str]) -> FileImages:
    return FileImages(tuple(paths), np.zeros(len(paths), np.int64), tuple(classes))
