"""Recovery of cifar10_tiny_unsigned: power-of-two rows, a spike-coded readout and 6-bit weights.

Command:   lapis train cifar10_tiny_unsigned_w6 --data DIR --start runs/cifar10_tiny_unsigned_pow2
             --teacher runs/cifar10_tiny_teacher_128
Expected:  at most 0.6 points below cifar10_tiny_unsigned.
Ours:      92.00 % of 10,000 by `lapis evaluate` (docs/records/cifar10_tiny_unsigned_w6), in bf16.
"""

from __future__ import annotations

from dataclasses import replace

from lapis.config import CodingByPoint
from lapis.train.recipes.cifar10_tiny_w6 import RECIPE as SIGNED

RECIPE = replace(
    SIGNED,
    name="cifar10_tiny_unsigned_w6",
    model=SIGNED.model.replace(coding=CodingByPoint.all("unsigned")),
    start="runs/cifar10_tiny_unsigned_pow2",
    optim=replace(SIGNED.optim, lr=1e-5, epochs=0.4),
    checkpoint=replace(SIGNED.checkpoint, evaluate_epochs=0.4),
)
