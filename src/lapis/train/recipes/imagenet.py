"""The paper's networks on ImageNet.

Not stated in the paper, so ours: RandAugment 2 x 9, mixup 0.8, cutmix 1.0, label smoothing 0.1, erasing 0.25.
"""

from __future__ import annotations

from lapis.config import preset
from lapis.data.loader import Augment
from lapis.train.recipe import Data, Optim, Recipe
from lapis.train.recipes import _recovery

_DATA = Data(dataset="imagenet", normalise="half", crop=0.875, workers=8)
_AUGMENT = Augment(operations=2, mixup=0.8, cutmix=1.0, smoothing=0.1, erase=0.25)


def imagenet_base() -> Recipe:
    """Lapis-B on ImageNet: exact rows, W32, from BEiT-B/16.

    Command:   torchrun --nproc-per-node 2 -m lapis.cli train imagenet_base --data DIR
    Expected:  not printed in the paper; its power-of-two network has 80.58 %.
    Ours:      not run: it needs GPUs, ImageNet and the timm checkpoint beit_base_patch16_224.

    From the paper: 50 epochs, global batch 256, lr 1.3e-4, T = 15. Ours: 2 warm-up epochs, as for Lapis-L.
    """
    return Recipe(
        name="imagenet_base",
        model=preset("lapis_base"),
        start="beit_base_patch16_224",
        data=_DATA,
        augment=_AUGMENT,
        optim=Optim(lr=1.3e-4, batch=256, epochs=50, warmup_epochs=2),
    )


def imagenet_base_pow2() -> Recipe:
    """Recovery of imagenet_base: power-of-two rows and a spike-coded readout, W32.

    Command:   lapis train imagenet_base_pow2 --data DIR --start runs/imagenet_base
    Expected:  80.58 % (paper).
    Ours:      not run: it needs GPUs.
    """
    return _recovery.pow2(imagenet_base())


def imagenet_base_w6() -> Recipe:
    """Recovery of imagenet_base: power-of-two rows, a spike-coded readout and 6-bit weights at once.

    Command:   lapis train imagenet_base_w6 --data DIR --start runs/imagenet_base
    Expected:  80.32 % (paper).
    Ours:      not run: it needs GPUs.
    """
    return _recovery.w6(imagenet_base())


def imagenet_large() -> Recipe:
    """Lapis-L on ImageNet: exact rows, W32, from BEiT-L/16.

    Command:   torchrun --nproc-per-node 3 -m lapis.cli train imagenet_large --data DIR
    Expected:  83.70 % (paper).
    Ours:      not run: it needs GPUs, ImageNet and the timm checkpoint beit_large_patch16_224.

    From the paper: 60 epochs, global batch 162, lr 8.5e-5, T = 20, 2 warm-up epochs.
    """
    return Recipe(
        name="imagenet_large",
        model=preset("lapis_large"),
        start="beit_large_patch16_224",
        data=_DATA,
        augment=_AUGMENT,
        optim=Optim(lr=8.5e-5, batch=162, epochs=60, warmup_epochs=2),
    )


def imagenet_large_pow2() -> Recipe:
    """Recovery of imagenet_large: power-of-two rows and a spike-coded readout, W32.

    Command:   lapis train imagenet_large_pow2 --data DIR --start runs/imagenet_large
    Expected:  83.39 % (paper).
    Ours:      not run: it needs GPUs.
    """
    return _recovery.pow2(imagenet_large())


def imagenet_large_w6() -> Recipe:
    """Recovery of imagenet_large: power-of-two rows, a spike-coded readout and 6-bit weights at once.

    Command:   lapis train imagenet_large_w6 --data DIR --start runs/imagenet_large
    Expected:  83.25 % (paper).
    Ours:      not run: it needs GPUs.
    """
    return _recovery.w6(imagenet_large())
