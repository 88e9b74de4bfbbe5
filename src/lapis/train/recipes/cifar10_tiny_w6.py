"""Recovery of cifar10_tiny: power-of-two rows, a spike-coded readout and 6-bit weights: the deployed model.

Command:   lapis train cifar10_tiny_w6 --data DIR --start runs/cifar10_tiny_pow2 --teacher runs/cifar10_tiny_teacher
Expected:  at most 0.6 points below cifar10_tiny.
Ours:      not yet recorded for the whole chain. A short cut, straight from the teacher with optim.lr=2e-4,
           optim.epochs=1.5, optim.warmup_epochs=0.05: 86.35 % of 10,000 (docs/records/cifar10_tiny_w6), 2,527 s.
"""

from __future__ import annotations

from dataclasses import replace

from lapis.train.recipes.cifar10_tiny_pow2 import RECIPE as POW2

RECIPE = replace(
    POW2,
    name="cifar10_tiny_w6",
    model=POW2.model.replace(weight_bits=6),
    start="runs/cifar10_tiny_pow2",
)
