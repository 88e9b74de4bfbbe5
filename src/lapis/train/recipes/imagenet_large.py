"""Lapis-L on ImageNet: exact rows, W32, from BEiT-L/16.

Command:   torchrun --nproc-per-node 3 -m lapis.cli train imagenet_large --data DIR
Expected:  83.70 % (paper).
Ours:      not run: it needs GPUs, ImageNet and the timm checkpoint beit_large_patch16_224.

From the paper: 60 epochs, global batch 162, lr 8.5e-5, T = 20, 2 warm-up epochs.
Not stated there, so ours: RandAugment 2 x 9, mixup 0.8, cutmix 1.0, label smoothing 0.1, erasing 0.25.
"""

from __future__ import annotations

from lapis.config import preset
from lapis.data.loader import Augment
from lapis.train.recipe import Data, Optim, Recipe

RECIPE = Recipe(
    name="imagenet_large",
    model=preset("lapis_large"),
    start="beit_large_patch16_224",
    data=Data(dataset="imagenet", normalise="half", crop=0.875, workers=8),
    augment=Augment(operations=2, magnitude=9.0, mixup=0.8, cutmix=1.0, smoothing=0.1, erase=0.25),
    optim=Optim(lr=8.5e-5, batch=162, epochs=60, warmup_epochs=2),
)
