"""Recovery of cifar10_tiny_unsigned: power-of-two rows and a spike-coded readout, W32.

Command:   lapis train cifar10_tiny_unsigned_pow2 --data DIR --start runs/cifar10_tiny_unsigned
             --teacher runs/cifar10_tiny_teacher_128
Expected:  within 0.3 points of cifar10_tiny_unsigned.
Ours:      92.44 % of 10,000 (docs/records/cifar10_tiny_unsigned_pow2), 0.2 epochs in bf16.
"""

from __future__ import annotations

from dataclasses import replace

from lapis.config import CodingByPoint
from lapis.train.recipes.cifar10_tiny_pow2 import RECIPE as SIGNED

RECIPE = replace(
    SIGNED,
    name="cifar10_tiny_unsigned_pow2",
    model=SIGNED.model.replace(coding=CodingByPoint.all("unsigned")),
    start="runs/cifar10_tiny_unsigned",
    remove_value_mean=True,
    optim=replace(SIGNED.optim, lr=1e-5),
)
