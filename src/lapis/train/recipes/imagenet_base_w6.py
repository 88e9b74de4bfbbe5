"""Recovery of imagenet_base: power-of-two rows, a spike-coded readout and 6-bit weights at once.

Command:   lapis train imagenet_base_w6 --data DIR --start runs/imagenet_base
Expected:  80.32 % (paper).
Ours:      not run: it needs GPUs.

From the paper: 10 epochs, batch 108, lr 2e-5, no warm-up, from the network with exact rows, light augmentation with
mix_prob 0.1. What else is light is ours: no RandAugment and no erasing.
"""

from __future__ import annotations

from dataclasses import replace

from lapis.train.recipes.imagenet_base_pow2 import RECIPE as POW2

RECIPE = replace(
    POW2,
    name="imagenet_base_w6",
    model=POW2.model.replace(weight_bits=6),
    augment=replace(POW2.augment, mix_prob=0.1, operations=0, erase=0.0),
)
