"""lapis_tiny on CIFAR-10 at 128 px, exact rows, W32, spikes signed where the dense network has negative values.

Command:   lapis train cifar10_tiny --data DIR --start runs/cifar10_tiny_teacher_128
             --teacher runs/cifar10_tiny_teacher_128
Expected:  94 % is the aim.
Ours:      94.40 % of 10,000 (docs/records/cifar10_tiny), 1,322 s on two cores.

The loss is the paper's; the teacher is a DeiT-Ti fine-tuned here, of the student's own width and depth.
"""

from __future__ import annotations

from lapis.config import CodingByPoint, preset
from lapis.train.recipe import Checkpointing, Data, Distill, Optim, Recipe

SAME_BLOCKS = (2, 5, 8, 11)

RECIPE = Recipe(
    name="cifar10_tiny",
    model=preset(
        "lapis_tiny",
        classes=10,
        image_size=128,
        coding=CodingByPoint(attention_in="signed", qk="signed", v="signed", readout="signed", mlp_in="signed"),
    ),
    start="runs/cifar10_tiny_teacher_128",
    data=Data(dataset="cifar10"),
    optim=Optim(lr=2e-4, batch=64, epochs=1, warmup_epochs=0.05, precision="fp32"),
    distill=Distill(teacher="runs/cifar10_tiny_teacher_128", student_blocks=SAME_BLOCKS, teacher_blocks=SAME_BLOCKS),
    checkpoint=Checkpointing(evaluate_epochs=1.0, log_steps=20),
)
