"""DeiT-Ti, dense, fine-tuned on CIFAR-10 at 96 px: the teacher of the small recipes.

Command:   lapis train cifar10_tiny_teacher --data DIR --start deit_tiny_patch16_224/model.safetensors
Expected:  about 95 %; this stage is ours, the paper's teacher is BEiTv2-L.
Ours:      94.04 % of 10,000 (docs/records/cifar10_tiny_teacher) in two runs: 93.70 % after the 2.5 epochs (2,863 s on
           one core), then 3 epochs more from there, --set optim.epochs=3 (2,655 s on two).
"""

from __future__ import annotations

from lapis.config import preset
from lapis.train.recipe import Checkpointing, Data, Optim, Recipe

RECIPE = Recipe(
    name="cifar10_tiny_teacher",
    model=preset("lapis_tiny", classes=10, image_size=96, relation="dot", quantize=False),
    start="deit_tiny_patch16_224",
    data=Data(dataset="cifar10"),
    optim=Optim(lr=2e-4, batch=64, epochs=2.5, warmup_epochs=0.1, head_scale=5.0, precision="fp32"),
    checkpoint=Checkpointing(evaluate_epochs=2.5, log_steps=20),
)
