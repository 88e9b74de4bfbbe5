"""The first weights of a run: any source that `lapis.load` takes, or nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from lapis import models
from lapis.config import LapisConfig, MinCodeByPoint
from lapis.errors import LapisError
from lapis.nn.calibrate import calibrate, is_calibrated
from lapis.nn.checkpoint import check_tensors
from lapis.nn.fit import fit_layers
from lapis.nn.model import LapisViT
from lapis.nn.pretrained import load_backbone, local_tensors, resize_offsets, resize_positions
from lapis.nn.quantizer import Calibrated, Quantizer
from lapis.nn.symmetry import equalise, rotate_basis
from lapis.positions import offset_count
from lapis.train.objective import Teacher
from lapis.train.recipe import Recipe, Sparsity
from lapis.train.sparsity import choose_deadlines

# Images on which channels are equalised and deadlines are chosen.
FIT_BATCH = 64


def start_network(config: LapisConfig, source: str, generator_seed: int) -> LapisViT:
    """A network of `config` that starts from `source`; with no source, from random weights.

    Quantizers of the source are kept where their meaning is the same; the others are calibrated later. Its minimum
    codes are kept too, unless `config` sets some.
    """
    torch.manual_seed(generator_seed)
    if not source:
        return LapisViT(config)
    opened = models.load(source)
    if opened.kind == "foreign":
        return load_backbone(opened.path or source, config)
    old = opened.torch()
    if config.quantize and config.min_code == MinCodeByPoint() and config.window == old.config.window:
        config = config.replace(min_code=old.config.min_code)
    model = LapisViT(config)
    _carry_over(model, old, source)
    return model


@torch.no_grad()
def prepare_student(recipe: Recipe, images: Tensor, teacher: Teacher | None = None, restored: bool = False) -> LapisViT:
    """The first network of a run, with the steps and taus that its first weights lack found on a few images.

    A student that starts with the weights of its dense teacher is fitted to it, see `lapis.nn.fit`; one whose blocks
    learn from the teacher's tokens is calibrated on these. A run whose state is `restored` later needs neither.
    """
    model = start_network(recipe.model, recipe.start, recipe.seed).to(images.device)
    own = teacher is not None and recipe.start == recipe.distill.teacher and not teacher.model.config.quantize
    if recipe.sparsity.rotate_basis and teacher is not None and own:
        rotate_basis(teacher.model, images, positive=recipe.model.coding.attention_in == "unsigned")
        model.load_state_dict(teacher.model.state_dict(), strict=False)
    if not is_calibrated(model):
        if restored:
            for module in model.modules():
                if isinstance(module, Calibrated):
                    module.mark_ready()
        elif teacher is not None and own and recipe.stage != "blocks":
            fit_student(model, teacher, images, recipe.sparsity)
        elif teacher is not None and recipe.stage != "labels":
            tokens = teacher_tokens(teacher, images)
            if own:
                equalise(model, teacher.model, tokens)
            for block, x in zip(model.blocks, tokens, strict=True):
                calibrate(block, [x])
        else:
            calibrate(model, images, missing_only=True)
    if recipe.sparsity.rotate_basis and not own:
        rotate_basis(model, images)
    model.recompute = recipe.optim.recompute
    return model


@torch.no_grad()
def fit_student(model: LapisViT, teacher: Teacher, images: Tensor, sparsity: Sparsity) -> None:
    """Equalise the channels of a student with its teacher's weights, choose deadlines for its goals, and fit it."""
    equalise(model, teacher.model, teacher_tokens(teacher, images[:FIT_BATCH]))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    fit_layers(model, images)
    if any(goal < 1 for goal in sparsity.goals().values()):
        # Deadlines are chosen on a network that answers well, and the dense weights are fitted to live with them.
        choose_deadlines(model, sparsity, images[:FIT_BATCH])
        model.load_state_dict(before)
        fit_layers(model, images)


def teacher_tokens(teacher: Teacher, images: Tensor) -> list[Tensor]:
    """What goes into each block of the teacher."""
    return [teacher.model.embed(images), *teacher.model.tap(images, range(teacher.model.config.depth)).features[:-1]]


@torch.no_grad()
def _carry_over(model: LapisViT, start: LapisViT, source: str) -> None:
    new, old, own, tensors = model.config, start.config, model.state_dict(), dict(start.state_dict())
    for field in ("style", "width", "depth", "heads", "mlp_ratio", "patch_size", "image_channels", "scales_layers"):
        if getattr(old, field) != getattr(new, field):
            raise LapisError(f"{source} has {field}={getattr(old, field)}, the recipe has {getattr(new, field)}")
    if "pos_embed" in tensors and old.grid != new.grid:
        tensors["pos_embed"] = resize_positions(tensors["pos_embed"], new.grid)
    for name in [name for name in tensors if name.endswith("relation.position.table")]:
        if tensors[name].shape[0] != offset_count(new.grid):
            tensors[name] = resize_offsets(tensors[name], new.grid)
    before, after = local_tensors(start), local_tensors(model)
    fresh = {name for name, module in after.items() if _meaning(module, new) != _meaning(before.get(name), old)}
    if old.classes != new.classes:
        fresh |= {"head.weight", "head.bias"}
    # A quantizer or relation that only the old network has is dropped; any other unknown tensor is an error.
    dropped = before.keys() - own.keys()
    kept = {name: tensor for name, tensor in tensors.items() if name not in fresh and name not in dropped}
    fresh |= after.keys() - tensors.keys()
    check_tensors(source, kept, {name: tuple(tensor.shape) for name, tensor in own.items() if name not in fresh})
    model.load_state_dict({**{name: own[name] for name in fresh}, **kept})


def _meaning(module: object, config: LapisConfig) -> tuple[object, ...]:
    """What the tensors of a quantizer or relation mean; where it is the same in two networks, they carry over."""
    if isinstance(module, Quantizer):
        return type(module), module.low, module.high, getattr(module, "coding", None)
    return type(module), config.window, config.coding.qk
