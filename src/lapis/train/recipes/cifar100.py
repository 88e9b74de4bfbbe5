"""The paper's networks on CIFAR-100: as on CIFAR-10, with 100 classes."""

from __future__ import annotations

from dataclasses import replace

from lapis.train.recipe import Data, Distill, Recipe
from lapis.train.recipes import _recovery, cifar10


def cifar100_teacher() -> Recipe:
    """BEiTv2-L adapted to CIFAR-100: the paper's teacher.

    Command:   lapis train cifar100_teacher --data DIR
    Expected:  the paper does not print the teacher's accuracy.
    Ours:      not run: it needs a GPU and the timm checkpoint beitv2_large_patch16_224.
    """
    teacher = cifar10.cifar10_teacher()
    return replace(teacher, model=teacher.model.replace(classes=100), data=Data(dataset="cifar100", validate=5000))


def cifar100_small() -> Recipe:
    """Lapis-S on CIFAR-100: exact rows, W32, logit and feature distillation from BEiTv2-L.

    Command:   lapis train cifar100_small --data DIR --teacher runs/cifar100_teacher
    Expected:  81.41 % (paper).
    Ours:      not run: it needs a GPU and the timm checkpoints.
    """
    small = cifar10.cifar10_small()
    return replace(
        small,
        name="cifar100_small",
        model=small.model.replace(classes=100),
        data=Data(dataset="cifar100", validate=5000),
        distill=Distill(teacher="runs/cifar100_teacher"),
    )


def cifar100_small_w6() -> Recipe:
    """Recovery of cifar100_small: power-of-two rows, a spike-coded readout and 6-bit weights at once.

    Command:   lapis train cifar100_small_w6 --data DIR --start runs/cifar100_small
    Expected:  81.02 % (paper).
    Ours:      not run: it needs GPUs.
    """
    return _recovery.w6(cifar100_small())
