"""Recovery of cifar100_small: power-of-two rows and a spike-coded readout, W32.

Command:   lapis train cifar100_small_pow2 --data DIR --start runs/cifar100_small
Expected:  not printed in the paper.
Ours:      not run: it needs GPUs.

From the paper: 10 epochs, batch 108, lr 2e-5, no warm-up, starting from the network with exact rows.
The paper gives these numbers for ImageNet; on CIFAR we use the same.
"""

from __future__ import annotations

from dataclasses import replace

from lapis.train.recipes.cifar100_small import RECIPE as EXACT

RECIPE = replace(
    EXACT,
    name="cifar100_small_pow2",
    model=EXACT.model.replace(row_scale="pow2", readout="spikes"),
    start="runs/cifar100_small",
    optim=replace(EXACT.optim, lr=2e-5, batch=108, epochs=10, warmup_epochs=0),
)
