"""The images that a recipe trains and tests on."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from lapis import models
from lapis.data.class_folders import open_class_folders
from lapis.data.images import Images, spread, spread_indices
from lapis.data.open import open_images, packaged_images
from lapis.data.sources import resolve_data
from lapis.errors import LapisError
from lapis.train.recipe import Data, Recipe

# Of the packaged sample, this many images are for training and the rest for testing.
SAMPLE_TRAINS = 320


def open_sets(data: Data, folder: Path | None) -> tuple[Images, Images]:
    """(training images, test images), limited as the recipe says."""
    train: Images
    test: Images
    if data.dataset == "sample":
        if folder is not None:
            raise LapisError(
                f"this recipe trains on the packaged images and takes no data folder, but {folder} was given; "
                "leave --data out, or choose a dataset: --set data.dataset=cifar10"
            )
        whole = packaged_images()
        order = np.arange(len(whole))
        train, test = whole.select(order[:SAMPLE_TRAINS]), whole.select(order[SAMPLE_TRAINS:])
    elif data.dataset == "folder":
        own = open_class_folders(resolve_data(folder, None))
        train, test = own.train, own.held_out
    else:
        folder = resolve_data(folder, data.dataset)
        dataset = None if data.dataset == "imagenet" else data.dataset
        train, test = open_images(folder, "train", dataset), open_images(folder, "test", dataset)
    return _cut(train, data.limit), _cut(test, data.test_limit)


def trained_slice(recipe: Recipe) -> tuple[int, ...]:
    """The packaged images that a run's network has seen in training, its first weights and its teacher included."""
    seen: set[int] = set()
    if recipe.data.dataset == "sample":
        seen.update(spread_indices(SAMPLE_TRAINS, recipe.data.limit or SAMPLE_TRAINS).tolist())
    for source in (recipe.start, recipe.distill.teacher):
        if source:
            seen.update(models.open(source).trained_slice)
    return tuple(sorted(seen))


def _cut(images: Images, limit: int) -> Images:
    return spread(images, limit) if limit else images
