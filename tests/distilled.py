"""A small dense network, pictures without labels and short stages, to distil in seconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lapis.data import unlabelled
from lapis.nn import save_network
from lapis.train import distillation, loop
from lapis.train.distillation import Stage
from tests.networks import small_config, small_model

CONFIG = small_config(image_size=32, patch_size=8, classes=7, width=16, depth=3)
STAGES = {
    "blocks": Stage("blocks", 2e-3, 24, 0.5),
    "silence": Stage("blocks", 5e-4, 6, 0.4),
    "whole": Stage("whole", 5e-4, 6, 0.5, tokens=0.1, average=0.9),
}


def write_photos(folder: Path, count: int = 60) -> Path:
    """Smooth random pictures in three folders."""
    draw = np.random.default_rng(0)
    for index in range(count):
        place = folder / str(index % 3)
        place.mkdir(parents=True, exist_ok=True)
        small = Image.fromarray(draw.integers(0, 255, (6, 7, 3), np.uint8))
        small.resize((48, 40), Image.Resampling.BICUBIC).save(place / f"{index}.png")
    return folder


def write_dense(path: Path) -> str:
    """A dense network, as a checkpoint."""
    save_network(path, small_model(CONFIG.dense())[0])
    return str(path)


def shorten(patch: pytest.MonkeyPatch) -> None:
    """A few steps per stage, without drawings of the curves, and enough images held aside to measure on."""
    patch.setattr(unlabelled, "HELD_SHARE", 0.25)
    patch.setattr(distillation, "BATCH", 8)
    patch.setattr(distillation, "STAGES", STAGES)
    patch.setattr(loop, "plot_curves", lambda *arguments: None)
