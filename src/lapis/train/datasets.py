"""The images that a recipe trains and tests on."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor

from lapis._util.progress import Display
from lapis._util.run_layout import UNREADABLE_FILE
from lapis.data.class_folders import open_class_folders
from lapis.data.images import Images, set_aside, spread
from lapis.data.loader import UNREADABLE_SHARE, Batch, TestBatches
from lapis.data.open import open_images, resolve_data
from lapis.data.packaged import packaged_images
from lapis.data.unlabelled import load_list
from lapis.errors import LapisError
from lapis.nn.pixels import normalise
from lapis.train.recipe import Data, Recipe
from lapis.train.run_lock import open_own_file


def open_datasets(data: Data, folder: Path | None) -> tuple[Images, Images]:
    """(training images, images to evaluate on), limited as the recipe says."""
    train: Images
    test: Images
    if data.dataset == "sample":
        if folder is not None:
            raise LapisError(
                f"this recipe trains on the packaged images and takes no data folder, but {folder} was given; "
                "leave --data out, or choose a dataset: --set data.dataset=cifar10"
            )
        train, test = packaged_images("train"), packaged_images("test")
    elif data.dataset == "unlabelled":
        if folder is None or not folder.is_file():
            raise LapisError(f"unlabelled images are named by the list that lapis distill writes, not by {folder}")
        listed = load_list(folder)
        train, test = listed.train, listed.held_aside
    elif data.dataset == "folder":
        own = open_class_folders(resolve_data(folder, None))
        train, test = own.train, own.held_out
    else:
        folder = resolve_data(folder, data.dataset)
        dataset = None if data.dataset == "imagenet" else data.dataset
        train = open_images(folder, "train", dataset)
        test = train if data.validate else open_images(folder, "test", dataset)
    if data.validate:
        train, test = set_aside(train, data.validate)
    return spread(train, data.limit or len(train)), spread(test, data.test_limit or len(test))


def calibration_images(images: Images, recipe: Recipe, device: torch.device) -> Tensor:
    """Training images without augmentation, normalised, from which the first steps and taus are found."""
    few = TestBatches(spread(images, recipe.data.calibrate), recipe.preprocess, workers=recipe.data.workers)
    return normalise(torch.cat([batch.pixels for batch in few]).to(device), recipe.preprocess)


def note_unreadable(parts: tuple[Batch, ...], known: list[str], total: int, out: Path, display: Display) -> None:
    """Print and list each training image that cannot be read, once; `known` are those so far, and too many an error."""
    path = out / UNREADABLE_FILE
    for line in [line for part in parts for line in part.unreadable if line not in known]:
        known.append(line)
        display.print_line(line)
        with os.fdopen(open_own_file(path, os.O_WRONLY | os.O_APPEND), "a", encoding="utf-8") as file:
            file.write(line + "\n")
    if len(known) > UNREADABLE_SHARE * total:
        raise LapisError(f"{len(known)} of {total} training images cannot be read; see {path} and repair the data")
