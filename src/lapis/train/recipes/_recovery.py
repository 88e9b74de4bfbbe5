"""The paper's recovery stages: 10 epochs, batch 108, lr 2e-5, no warm-up, from the network with exact rows.

The paper gives these numbers for ImageNet; on CIFAR we use the same.
"""

from __future__ import annotations

from dataclasses import replace

from lapis.train.recipe import Recipe


def pow2(exact: Recipe) -> Recipe:
    """Power-of-two rows and a spike-coded readout, W32."""
    return replace(
        exact,
        model=exact.model.replace(row_scale="pow2", readout="spikes"),
        start=f"runs/{exact.name}",
        optim=replace(exact.optim, lr=2e-5, batch=108, epochs=10, warmup_epochs=0),
    )


def w6(exact: Recipe) -> Recipe:
    """The same with 6-bit weights, and light augmentation with mix_prob 0.1.

    What else is light is ours: mixup 0.8 and cutmix 1.0 on a tenth of the batches, no RandAugment and no erasing.
    """
    stage = pow2(exact)
    return replace(
        stage,
        model=stage.model.replace(weight_bits=6),
        augment=replace(stage.augment, mixup=0.8, cutmix=1.0, mix_prob=0.1, operations=0, erase=0.0),
    )
