"""cifar10_tiny_w6 with affinities of 5 bits. It needs no training: packing the trained network is enough.

Command:   lapis pack runs/cifar10_tiny_w6 --affinity-bits 5 -o lapis_tiny_a5.safetensors
             or, to let training see the rounding as well, lapis train cifar10_tiny_a5 --data DIR
Expected:  no accuracy lost without training; the circuits between queries and mixed values take a third of the energy.
Ours:      93.80 % of 10,000 by `lapis evaluate`, packed from lapis_tiny.cifar10_dense (93.85 % with 15 bits);
           training was not run.
"""

from __future__ import annotations

from dataclasses import replace

from lapis.train.recipes.cifar10_tiny_w6 import RECIPE as W6

RECIPE = replace(
    W6,
    name="cifar10_tiny_a5",
    model=W6.model.replace(affinity_bits=5),
    start="runs/cifar10_tiny_w6",
)
