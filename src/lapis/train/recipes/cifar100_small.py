"""Lapis-S on CIFAR-100: exact rows, W32, logit and feature distillation from BEiTv2-L.

Command:   lapis train cifar100_small --data DIR --teacher runs/cifar100_teacher
Expected:  81.41 % (paper).
Ours:      not run: it needs a GPU and the timm checkpoints.

From the paper: 100 epochs, batch 128, AdamW, lr 1e-4, weight decay 0.05, cosine, 5 warm-up epochs, T = 15, loss
0.5 CE + 0.5 logit + 0.5 feature at temperature 4, student blocks 2/5/8/11 to teacher blocks 5/11/17/23. Not stated
there, so ours: the first weights (DeiT-S), and shift and mirror as the only augmentation.
"""

from __future__ import annotations

from lapis.config import preset
from lapis.train.recipe import Data, Distill, Optim, Recipe

RECIPE = Recipe(
    name="cifar100_small",
    model=preset("lapis_small", classes=100),
    start="deit_small_patch16_224",
    data=Data(dataset="cifar100"),
    optim=Optim(lr=1e-4, weight_decay=0.05, batch=128, epochs=100, warmup_epochs=5),
    distill=Distill(teacher="runs/cifar100_teacher"),
)
