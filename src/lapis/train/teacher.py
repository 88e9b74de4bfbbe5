"""The teacher: a frozen network that gets the student's images in its own normalisation."""

from __future__ import annotations

import torch
from torch import Tensor

from lapis import models
from lapis.config import LapisConfig
from lapis.errors import LapisError
from lapis.nn.model import LapisViT, Tapped
from lapis.nn.pixels import renormalise
from lapis.preprocess import Preprocess
from lapis.train.recipe import Recipe


class Teacher:
    """Logits and tapped tokens, without gradients."""

    def __init__(self, model: LapisViT, blocks: tuple[int, ...], student: Preprocess, own: Preprocess) -> None:
        self.model = model.eval().requires_grad_(False)
        self.blocks, self.student, self.own = blocks, student, own

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tapped:
        return self.model.tap(renormalise(images, self.student, self.own), self.blocks)


def load_teacher(recipe: Recipe, device: torch.device) -> Teacher | None:
    """The recipe's teacher, or None; a teacher that does not fit the student is an error."""
    if not recipe.distill.teacher:
        return None
    opened = models.load(recipe.distill.teacher)
    check_teacher(recipe, opened.config)
    blocks = recipe.distill.teacher_blocks if recipe.distill.feature else ()
    if recipe.stage != "labels":
        blocks = tuple(range(opened.config.depth))
    # A file of foreign weights does not say how images are prepared.
    own = recipe.preprocess if opened.kind == "foreign" else opened.preprocess
    return Teacher(opened.torch().to(device), blocks, recipe.preprocess, own)


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
