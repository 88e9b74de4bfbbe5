"""Recovery of cifar10_tiny: power-of-two rows, a spike-coded readout and 6-bit weights: the deployed model.

Command:   lapis train cifar10_tiny_w6 --data DIR --start runs/cifar10_tiny_pow2
             --teacher runs/cifar10_tiny_teacher_128
Expected:  at most 0.6 points below cifar10_tiny.
Ours:      @W6@
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
