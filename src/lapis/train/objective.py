"""What a run learns: labels and, with a teacher, its logits and features; or a teacher's tokens block by block.

Distillation without labels knows the teacher's tokens x_0 .. x_L. In the stage `blocks`, block l gets x_{l-1} and must
give x_l. Gradients stay inside a block, so nothing explodes and nothing drifts, and the deployed form can be trained
from the first step. In the stage `whole` the network sees images, every block gets what the one before gave, and the
teacher's answers are learned too.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lapis import models
from lapis.config import LapisConfig
from lapis.errors import LapisError
from lapis.nn.model import LapisViT, Tapped
from lapis.nn.pixels import renormalise
from lapis.preprocess import Preprocess
from lapis.train.recipe import Distill, Recipe
from lapis.train.teacher_cache import TeacherCache

# How much the error of the class token counts, besides its share in the errors of all tokens.
CLASS_TOKEN = 0.3


class Teacher:
    """A frozen network that gets the student's images in its own normalisation: logits and tapped tokens.

    With a cache, the logits of a named view are computed once.
    """

    def __init__(
        self, model: LapisViT, blocks: tuple[int, ...], student: Preprocess, own: Preprocess,
        cache: TeacherCache | None = None,
    ) -> None:  # fmt: skip
        self.model = model.eval().requires_grad_(False)
        self.blocks, self.student, self.own, self.cache = blocks, student, own, cache

    @torch.no_grad()
    def __call__(self, images: Tensor, view: str = "") -> Tapped:
        known = self.cache.read(view, len(images)) if self.cache is not None and view else None
        if known is not None:
            return Tapped(known.to(images.device), [])
        output = self.model.tap(renormalise(images, self.student, self.own), self.blocks)
        if self.cache is not None and view:
            self.cache.write(view, output.logits)
        return output


def load_teacher(recipe: Recipe, device: torch.device, images: int = 0) -> Teacher | None:
    """The recipe's teacher, or None; a teacher that does not fit the student is an error.

    `images` is the number of training images, on which cached answers depend.
    """
    if not recipe.distill.teacher:
        return None
    opened = models.load(recipe.distill.teacher)
    check_teacher(recipe, opened.config)
    blocks = recipe.distill.teacher_blocks if recipe.distill.feature else ()
    if recipe.stage != "labels":
        blocks = tuple(range(opened.config.depth))
    # A file of foreign weights does not say how images are prepared.
    own = recipe.preprocess if opened.kind == "foreign" else opened.preprocess
    model, folder = opened.torch().to(device), recipe.distill.cache
    cache = TeacherCache(Path(folder), model, recipe, images) if folder else None
    return Teacher(model, blocks, recipe.preprocess, own, cache)


def check_teacher(recipe: Recipe, theirs: LapisConfig) -> None:
    """Refuse a teacher of this configuration if the recipe's student cannot learn from it."""
    ours_at, theirs_at, ours = recipe.distill.student_blocks, recipe.distill.teacher_blocks, recipe.model
    if recipe.stage != "labels" and (theirs.depth, theirs.width) != (ours.depth, ours.width):
        raise LapisError(
            f"stage={recipe.stage} compares tokens block by block: teacher {recipe.distill.teacher} has depth "
            f"{theirs.depth} and width {theirs.width}, the student {ours.depth} and {ours.width}"
        )
    if len(ours_at) != len(theirs_at):
        raise LapisError(f"distill.student_blocks={ours_at} and distill.teacher_blocks={theirs_at} must pair up")
    if theirs.classes != ours.classes:
        raise LapisError(
            f"teacher {recipe.distill.teacher} knows {theirs.classes} classes, the student {ours.classes}; "
            "adapt the teacher to this dataset first"
        )
    if theirs.image_size != ours.image_size:
        raise LapisError(
            f"teacher {recipe.distill.teacher} takes {theirs.image_size} px, the student {ours.image_size}; "
            f"set model.image_size={theirs.image_size} or train a teacher at {ours.image_size}"
        )


class Terms(NamedTuple):
    """The loss and its parts, unweighted; each a mean over the batch."""

    loss: Tensor
    ce: Tensor
    logit: Tensor
    feature: Tensor
    right: Tensor


class Objective(nn.Module):
    """ce CE(y, p) + logit KD(p_teacher, p) + feature FD(f_teacher, P f), P one learned linear map.

    It is a module, so that the map trains together with the student and both are averaged over processes.
    """

    def __init__(self, student: LapisViT, distill: Distill, teacher_width: int | None) -> None:
        super().__init__()
        self.student, self.distill = student, distill
        self.project = None
        if teacher_width is not None and distill.feature:
            self.project = nn.Linear(student.config.width, teacher_width)

    @torch.no_grad()
    def align(self, images: Tensor, teacher_output: Tapped) -> None:
        """Start P, where both widths are equal, from the rotation that brings the student's first tokens nearest.

        It is the identity for a student with the weights of its teacher, and turns back one in another basis.
        """
        if self.project is None or self.project.in_features != self.project.out_features:
            return
        ours = self.student.eval().tap(images, self.distill.student_blocks).features
        self.student.train()
        pairs = zip(ours, teacher_output.features, strict=True)
        product = sum((theirs.flatten(0, 1).double().T @ own.flatten(0, 1).double()) for own, theirs in pairs)
        left, _, right = torch.linalg.svd(product)
        self.project.weight.copy_(left @ right)
        self.project.bias.zero_()

    def forward(self, images: Tensor, targets: Tensor, teacher_output: Tapped | None) -> Terms:
        taps = () if self.project is None else self.distill.student_blocks
        logits, features = self.student.tap(images, taps)
        logits = logits.float()
        loss = ce = soft_cross_entropy(logits, targets)
        logit = feature = torch.zeros_like(ce)
        if teacher_output is not None:
            logit = logit_distillation(logits, teacher_output.logits.float(), self.distill.temperature)
            if self.project is not None:
                pairs = zip(features, teacher_output.features, strict=True)
                feature = torch.stack([feature_distillation(self.project(own), theirs) for own, theirs in pairs]).mean()
            loss = self.distill.ce * ce + self.distill.logit * logit + self.distill.feature * feature
        right = (logits.argmax(1) == targets.argmax(1)).float().mean()
        return Terms(loss, ce.detach(), logit.detach(), feature.detach(), right)


class BlockObjective(nn.Module):
    """loss = tokens sum_l (e_l + 0.3 c_l) + logit KL(teacher || student).

    e_l = mean (y_l - x_l)^2 / mean (x_l - x_a)^2: the error of the tokens y_l after block l, relative to what was added
    since the tokens x_a: those before the block, or before all blocks where they learn as a whole. c_l is the same of
    the class token alone: it is one of many tokens, and carries the answer. Blocks alone learn no answers: KL is 0.
    """

    def __init__(self, student: LapisViT, distill: Distill, whole: bool) -> None:
        super().__init__()
        self.student, self.distill, self.whole = student, distill, whole

    def forward(self, images: Tensor, targets: Tensor, teacher_output: Tapped) -> Terms:
        """The teacher's output has the tokens after every block; targets are not looked at."""
        student, distill, errors, classes = self.student, self.distill, [], []
        y = start = student.embed(images) if self.whole else student.embed(images).detach()
        for block, tokens in zip(student.blocks, teacher_output.features, strict=True):
            target = tokens.float()
            y = student.run_block(block, y)
            error, added = (y.float() - target).square(), (target - start.detach().float()).square()
            errors.append(error.mean() / added.mean())
            classes.append(error[:, 0].mean() / added[:, 0].mean())
            if not self.whole:
                y = start = target
        loss = distill.tokens * (torch.stack(errors).sum() + CLASS_TOKEN * torch.stack(classes).sum())
        logit = right = torch.zeros_like(loss)
        if self.whole:
            logits = student.head(student.pool(y)).float()
            logit = logit_distillation(logits, teacher_output.logits.float(), distill.temperature)
            loss = loss + distill.logit * logit
            right = (logits.argmax(1) == teacher_output.logits.argmax(1)).float().mean()
        return Terms(loss, torch.zeros_like(loss), logit.detach(), torch.stack(errors).mean().detach(), right)


@torch.no_grad()
def block_errors(student: LapisViT, teacher: LapisViT, images: Tensor) -> list[float]:
    """e_l of every block alone, on the teacher's tokens of some images."""
    errors = []
    x = teacher.eval().embed(images)
    for block, source in zip(student.eval().blocks, teacher.blocks, strict=True):
        target = source(x)
        errors.append(float((block(x) - target).square().mean() / (target - x).square().mean()))
        x = target
    return errors


def make_objective(student: LapisViT, teacher: Teacher | None, recipe: Recipe, images: Tensor) -> nn.Module:
    """The objective of a run, aligned to its teacher's features on a few images; on the student's device, to train."""
    if recipe.stage != "labels":
        return BlockObjective(student, recipe.distill, recipe.stage == "whole").to(images.device).train()
    width = None if teacher is None else teacher.model.config.width
    objective = Objective(student, recipe.distill, width).to(images.device).train()
    if teacher is not None and recipe.distill.feature:
        objective.align(images, teacher(images))
    return objective


def soft_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """-mean_i sum_c y_ic ln softmax(x_i)_c; logits, targets (n, classes)."""
    return -(targets * F.log_softmax(logits, dim=1)).sum(dim=1).mean()


def logit_distillation(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T**2 KL(softmax(teacher/T) || softmax(student/T)), mean over the batch.

    The factor T**2 keeps the gradient's size when the temperature changes.
    """
    log_p = F.log_softmax(student / temperature, dim=1)
    log_q = F.log_softmax(teacher / temperature, dim=1)
    return F.kl_div(log_p, log_q, reduction="batchmean", log_target=True) * temperature**2


def feature_distillation(student: Tensor, teacher: Tensor) -> Tensor:
    """Mean of (LN(student) - LN(teacher))**2 over tokens (n, N, D), LN without learned scale."""
    if student.shape != teacher.shape:
        raise LapisError(
            f"features of student {tuple(student.shape)} and teacher {tuple(teacher.shape)} do not match; "
            "both must see the same number of tokens: the same image and patch size"
        )
    width = student.shape[-1:]
    return F.mse_loss(F.layer_norm(student.float(), width), F.layer_norm(teacher.float(), width))
