"""Lapis-B on ImageNet: exact rows, W32, from BEiT-B/16.

Command:   torchrun --nproc-per-node 2 -m lapis.cli train imagenet_base --data DIR
Expected:  not printed in the paper; its power-of-two network has 80.58 %.
Ours:      not run: it needs GPUs, ImageNet and the timm checkpoint beit_base_patch16_224.

From the paper: 50 epochs, global batch 256, lr 1.3e-4, T = 15.
Not stated there, so ours: 2 warm-up epochs as for Lapis-L, RandAugment 2 x 9, mixup 0.8, cutmix 1.0, label smoothing
0.1, erasing 0.25.
"""

from __future__ import annotations

from lapis.config import preset
from lapis.data.loader import Augment
from lapis.train.recipe import Data, Optim, Recipe

RECIPE = Recipe(
    name="imagenet_base",
    model=preset("lapis_base"),
    start="beit_base_patch16_224",
    data=Data(dataset="imagenet", normalise="half", crop=0.875, workers=8),
    augment=Augment(operations=2, magnitude=9.0, mixup=0.8, cutmix=1.0, smoothing=0.1, erase=0.25),
    optim=Optim(lr=1.3e-4, batch=256, epochs=50, warmup_epochs=2),
)
