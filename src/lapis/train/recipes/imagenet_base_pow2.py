"""Recovery of imagenet_base: power-of-two rows and a spike-coded readout, W32.

Command:   lapis train imagenet_base_pow2 --data DIR --start runs/imagenet_base
Expected:  80.58 % (paper).
Ours:      not run: it needs GPUs.

From the paper: 10 epochs, batch 108, lr 2e-5, no warm-up, starting from the network with exact rows.
"""

from __future__ import annotations

from dataclasses import replace

from lapis.train.recipes.imagenet_base import RECIPE as EXACT

RECIPE = replace(
    EXACT,
    name="imagenet_base_pow2",
    model=EXACT.model.replace(row_scale="pow2", readout="spikes"),
    start="runs/imagenet_base",
    optim=replace(EXACT.optim, lr=2e-5, batch=108, epochs=10, warmup_epochs=0),
)
