"""BEiTv2-L adapted to CIFAR-10: the paper's teacher.

Command:   lapis train cifar10_teacher --data DIR
Expected:  the paper does not print the teacher's accuracy.
Ours:      not run: it needs a GPU and the timm checkpoint beitv2_large_patch16_224.

From the paper: 20 epochs, batch 64, lr 5e-5. Not stated there, so ours: no warm-up, weight decay 0.05, 224 px.
"""

from __future__ import annotations

from lapis.config import preset
from lapis.train.recipe import Data, Optim, Recipe

RECIPE = Recipe(
    name="cifar10_teacher",
    model=preset("lapis_large", classes=10, relation="dot", quantize=False),
    start="beitv2_large_patch16_224",
    data=Data(dataset="cifar10"),
    optim=Optim(lr=5e-5, batch=64, epochs=20, warmup_epochs=0),
)
