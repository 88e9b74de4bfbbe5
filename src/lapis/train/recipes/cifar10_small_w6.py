"""Recovery of cifar10_small: power-of-two rows, a spike-coded readout and 6-bit weights at once.

Command:   lapis train cifar10_small_w6 --data DIR --start runs/cifar10_small
Expected:  96.11 % (paper).
Ours:      not run: it needs GPUs.

From the paper: 10 epochs, batch 108, lr 2e-5, no warm-up, from the network with exact rows, light augmentation with
mix_prob 0.1. What else is light is ours: mixup 0.8 and cutmix 1.0 on a tenth of the batches.
"""

from __future__ import annotations

from dataclasses import replace

from lapis.train.recipes.cifar10_small_pow2 import RECIPE as POW2

RECIPE = replace(
    POW2,
    name="cifar10_small_w6",
    model=POW2.model.replace(weight_bits=6),
    augment=replace(POW2.augment, mixup=0.8, cutmix=1.0, mix_prob=0.1),
)
