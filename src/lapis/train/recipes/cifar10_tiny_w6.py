"""Recovery of cifar10_tiny: power-of-two rows, a spike-coded readout and 6-bit weights: the deployed model.

Command:   lapis train cifar10_tiny_w6 --data DIR --start runs/cifar10_tiny_pow2
             --teacher runs/cifar10_tiny_teacher_128
Expected:  at most 0.6 points below cifar10_tiny.
Ours:      93.85 % of 10,000 by `lapis evaluate`, 680 s on two cores; its log (docs/records/cifar10_tiny_w6) tested
           on every tenth: 92.50 % (the engine: the same 925).
"""

from __future__ import annotations

from dataclasses import replace

from lapis.train.recipes.cifar10_tiny_pow2 import RECIPE as POW2

RECIPE = replace(
    POW2,
    name="cifar10_tiny_w6",
    model=POW2.model.replace(weight_bits=6),
    start="runs/cifar10_tiny_pow2",
    optim=replace(POW2.optim, epochs=0.5),
    checkpoint=replace(POW2.checkpoint, evaluate_epochs=0.5),
)
