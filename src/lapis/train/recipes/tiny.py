"""lapis_tiny on CIFAR-10, small enough for a laptop: a chain in which each stage starts from the run of one before.

A run is evaluated on 5,000 training images that it does not train on. What stands under `Ours` was run before that, on
all 50,000 and with the test images in view: `--set data.validate=0` repeats it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lapis.config import CodingByPoint, LapisConfig, preset
from lapis.data.loader import Augment
from lapis.train.recipe import DRIVING, SIGNED, Checkpointing, Data, Distill, Optim, Recipe, Sparsity


def smoke() -> Recipe:
    """A minute of training on the packaged images: it shows that training works, not how good it can be.

    Command:   lapis train smoke --out runs/smoke
    Expected:  the loss falls and the training images are learnt; 400 test images are too few to judge.
    Ours:      34.00 % of 400 test images after 400 steps, 101 s on one thread beside other work (seed 0).
    """
    return Recipe(
        model=LapisConfig(image_size=32, patch_size=4, classes=10, width=48, depth=3, heads=3, mlp_ratio=2),
        data=Data(dataset="sample", normalise="cifar"),
        augment=Augment(padding=2),
        optim=Optim(lr=2e-3, batch=32, epochs=40, warmup_epochs=2, precision="fp32"),
        checkpoint=Checkpointing(evaluate_epochs=10, log_steps=10),
    )


def cifar10_tiny_teacher() -> Recipe:
    """DeiT-Ti, dense, fine-tuned on CIFAR-10 at 96 px: the teacher of the small recipes.

    Command:   lapis train cifar10_tiny_teacher --data DIR --start deit_tiny_patch16_224/model.safetensors
    Expected:  about 95 %; this stage is ours, the paper's teacher is BEiTv2-L.
    Ours:      94.04 % of 10,000 (docs/records/cifar10_tiny_teacher) in two runs: 93.70 % after the 2.5 epochs (2,863 s
               on one core), then 3 epochs more from there, --set optim.epochs=3 (2,655 s on two).
    """
    return Recipe(
        model=preset("lapis_tiny", classes=10, image_size=96, relation="dot", quantize=False),
        start="deit_tiny_patch16_224",
        data=Data(dataset="cifar10", validate=5000),
        optim=Optim(lr=2e-4, batch=64, epochs=2.5, warmup_epochs=0.1, head_scale=5.0, precision="fp32"),
        checkpoint=Checkpointing(evaluate_epochs=2.5),
    )


def cifar10_tiny_teacher_128() -> Recipe:
    """The teacher at 128 px, starting from the one at 96: a patch covers 4 by 4 original pixels instead of 5.3 by 5.3.

    Command:   lapis train cifar10_tiny_teacher_128 --data DIR
    Expected:  about 95 %; this stage is ours.
    Ours:      95.15 % of 10,000 (docs/records/cifar10_tiny_teacher_128), 12 minutes on two cores without the pauses.
    """
    smaller = _changed(cifar10_tiny_teacher(), 0.7, lr=1.5e-4, warmup_epochs=0.03, head_scale=1.0)
    return replace(smaller, model=smaller.model.replace(image_size=128), start="runs/cifar10_tiny_teacher")


def cifar10_tiny() -> Recipe:
    """lapis_tiny on CIFAR-10 at 128 px, exact rows, W32, spikes signed where the dense network has negative values.

    Command:   lapis train cifar10_tiny --data DIR
    Expected:  94 % is the aim.
    Ours:      94.40 % of 10,000 (docs/records/cifar10_tiny), 1,322 s on two cores.

    The loss is the paper's; the teacher is a DeiT-Ti fine-tuned here, of the student's own width and depth.
    """
    teacher, same_blocks = "runs/cifar10_tiny_teacher_128", (2, 5, 8, 11)
    return Recipe(
        model=preset("lapis_tiny", classes=10, image_size=128, coding=SIGNED),
        start=teacher,
        data=Data(dataset="cifar10", validate=5000),
        optim=Optim(lr=2e-4, batch=64, epochs=1, warmup_epochs=0.05, precision="fp32"),
        distill=Distill(teacher=teacher, student_blocks=same_blocks, teacher_blocks=same_blocks),
        checkpoint=Checkpointing(evaluate_epochs=1.0),
    )


def cifar10_tiny_pow2() -> Recipe:
    """Recovery of cifar10_tiny: power-of-two rows and a spike-coded readout, W32.

    Command:   lapis train cifar10_tiny_pow2 --data DIR
    Expected:  within 0.3 points of cifar10_tiny (the paper loses 0.31 on ImageNet).
    Ours:      93.72 % of 10,000 (docs/records/cifar10_tiny_pow2), 404 s on two cores.
    """
    exact = _changed(cifar10_tiny(), 0.25, lr=1e-4, warmup_epochs=0.02)
    return replace(exact, model=exact.model.replace(row_scale="pow2", readout="spikes"), start="runs/cifar10_tiny")


def cifar10_tiny_w6() -> Recipe:
    """Recovery of cifar10_tiny: power-of-two rows, a spike-coded readout and 6-bit weights: the deployed model.

    Command:   lapis train cifar10_tiny_w6 --data DIR
    Expected:  at most 0.6 points below cifar10_tiny.
    Ours:      93.85 % of 10,000 by `lapis evaluate`, 680 s on two cores; its log (docs/records/cifar10_tiny_w6) tested
               on every tenth: 92.50 % (the engine: the same 925).
    """
    pow2 = _changed(cifar10_tiny_pow2(), 0.5)
    return replace(pow2, model=pow2.model.replace(weight_bits=6), start="runs/cifar10_tiny_pow2")


def cifar10_tiny_sparse() -> Recipe:
    """The deployed model with fewer spikes: half of the neurons stay silent.

    Command:   lapis train cifar10_tiny_sparse --data DIR
    Expected:  no accuracy lost at an activity of 0.65, 93 % at 0.5.
    Ours:      93.24 % of 10,000 at an activity of 0.50, in four runs of 3.45 epochs together, the last with the
               settings of optim and distill that are here. The recipe as it stands was not run as a whole.

    Logits only: a teacher other than the one that the first weights come from has other features. A rate above 3e-5
    lets 6-bit weights jump and queries and keys drift apart.
    """
    goals: dict[str, Any] = dict.fromkeys(DRIVING, 0.5)
    dense = _changed(cifar10_tiny_w6(), 1.2, lr=3e-5, precision="bf16")
    return replace(
        dense,
        start="lapis_tiny.cifar10_dense",
        sparsity=Sparsity(**goals, ramp=0.4, freeze_after=0.5, rotate_basis=True, sensitivity_weighted=True),
        distill=replace(dense.distill, feature=0.0, logit=1.0),
        checkpoint=replace(dense.checkpoint, evaluate_epochs=0.6),
    )


def cifar10_tiny_unsigned() -> Recipe:
    """lapis_tiny on CIFAR-10 at 128 px in the paper's own mode: a negative value gives no spike.

    Command:   lapis train cifar10_tiny_unsigned --data DIR
    Expected:  92 % is the aim.
    Ours:      92.89 % of 10,000 (docs/records/cifar10_tiny_unsigned), from lapis_tiny.cifar10_dense, in bf16.

    It starts from the signed network, shifted: biases shift its values above zero, so that few are lost.
    """
    signed = _changed(cifar10_tiny(), 0.25, lr=1e-4, warmup_epochs=0.02)
    return replace(_unsigned(signed), start="runs/cifar10_tiny", shift_to_unsigned=True)


def cifar10_tiny_unsigned_pow2() -> Recipe:
    """Recovery of cifar10_tiny_unsigned: power-of-two rows and a spike-coded readout, W32.

    Command:   lapis train cifar10_tiny_unsigned_pow2 --data DIR
    Expected:  within 0.3 points of cifar10_tiny_unsigned.
    Ours:      92.44 % of 10,000 (docs/records/cifar10_tiny_unsigned_pow2), 0.2 epochs in bf16.
    """
    signed = _changed(cifar10_tiny_pow2(), 0.25, lr=1e-5)
    return replace(_unsigned(signed), start="runs/cifar10_tiny_unsigned", remove_value_mean=True)


def cifar10_tiny_unsigned_w6() -> Recipe:
    """Recovery of cifar10_tiny_unsigned: power-of-two rows, a spike-coded readout and 6-bit weights.

    Command:   lapis train cifar10_tiny_unsigned_w6 --data DIR
    Expected:  at most 0.6 points below cifar10_tiny_unsigned.
    Ours:      92.00 % of 10,000 by `lapis evaluate` (docs/records/cifar10_tiny_unsigned_w6), in bf16.
    """
    return replace(_unsigned(_changed(cifar10_tiny_w6(), 0.4, lr=1e-5)), start="runs/cifar10_tiny_unsigned_pow2")


def _unsigned(recipe: Recipe) -> Recipe:
    return replace(recipe, model=recipe.model.replace(coding=CodingByPoint.all("unsigned")))


def _changed(recipe: Recipe, epochs: float, **optim: float | str) -> Recipe:
    """The recipe with another length, which is also when it is evaluated, and other settings of the optimizer."""
    return replace(
        recipe,
        optim=replace(recipe.optim, epochs=epochs, **optim),  # type: ignore[arg-type]
        checkpoint=replace(recipe.checkpoint, evaluate_epochs=epochs),
    )
