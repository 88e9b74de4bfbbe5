"""The first weights of a run: any source that `lapis.models.open` takes, or nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from lapis import models
from lapis.config import LapisConfig, LeastCodes
from lapis.errors import LapisError
from lapis.nn.calibrated import Calibrated
from lapis.nn.checkpoint import check_tensors
from lapis.nn.model import LapisViT
from lapis.nn.pretrained import load_backbone, resize_offsets, resize_positions
from lapis.nn.quantizer import ActivationQuantizer, Quantizer
from lapis.nn.relation import DistanceRelation
from lapis.positions import offset_count


def start_network(config: LapisConfig, source: str, generator_seed: int) -> LapisViT:
    """A network of `config` that starts from `source`; with no source, from random weights.

    Quantizers of the source are kept where their meaning is the same; the others are calibrated later. Its least
    codes are kept too, unless `config` sets some.
    """
    torch.manual_seed(generator_seed)
    if not source:
        return LapisViT(config)
    opened = models.open(source)
    if opened.kind == "foreign":
        return load_backbone(opened.path or source, config)
    old = opened.model()
    if config.quantize and config.least_codes == LeastCodes() and config.window == old.config.window:
        config = config.replace(least_codes=old.config.least_codes)
    model = LapisViT(config)
    _carry_over(model, dict(old.state_dict()), old.config, source)
    return model


@torch.no_grad()
def _carry_over(model: LapisViT, tensors: dict[str, Tensor], old: LapisConfig, source: str) -> None:
    new, own = model.config, model.state_dict()
    for field in ("style", "width", "depth", "heads", "mlp_ratio", "patch_size"):
        if getattr(old, field) != getattr(new, field):
            raise LapisError(f"{source} has {field}={getattr(old, field)}, the recipe has {getattr(new, field)}")
    if "pos_embed" in tensors and old.grid != new.grid:
        tensors["pos_embed"] = resize_positions(tensors["pos_embed"], new.grid)
    for name in [name for name in tensors if name.endswith("relation.position.table")]:
        if tensors[name].shape[0] != offset_count(new.grid):
            tensors[name] = resize_offsets(tensors[name], new.grid)
    fresh = _changed_parts(model, old)
    if old.classes != new.classes:
        fresh |= {"head.weight", "head.bias"}
    # A quantizer that only the old network has is dropped; any other unknown tensor is an error.
    dropped = {name for name in tensors.keys() - own.keys() if _belongs_to_quantizer(name)}
    kept = {name: tensor for name, tensor in tensors.items() if name not in fresh and name not in dropped}
    fresh |= {name for name in own.keys() - tensors.keys() if _belongs_to_quantizer(name)}
    check_tensors(source, kept, {name: tuple(tensor.shape) for name, tensor in own.items() if name not in fresh})
    model.load_state_dict({**{name: own[name] for name in fresh}, **kept})


def _changed_parts(model: LapisViT, old: LapisConfig) -> set[str]:
    """Tensors of quantizers and relations whose meaning differs from the old network's."""
    new, names = model.config, set()
    before = LapisViT(old)
    parts = {name: module for name, module in before.named_modules() if isinstance(module, Calibrated)}
    for name, module in model.named_modules():
        if not isinstance(module, Calibrated):
            continue
        previous = parts.get(name)
        same = type(previous) is type(module)
        if isinstance(module, Quantizer) and isinstance(previous, Quantizer):
            same = same and (module.low, module.high) == (previous.low, previous.high)
        if isinstance(module, ActivationQuantizer) and isinstance(previous, ActivationQuantizer):
            same = same and module.mode == previous.mode
        if isinstance(module, DistanceRelation):
            same = same and old.window == new.window and old.modes.qk == new.modes.qk
        if not same:
            names |= {f"{name}.{key}" for key in ("log_step", "offset", "log_tau", "ready")}
    return names & model.state_dict().keys()


def _belongs_to_quantizer(name: str) -> bool:
    return name.rsplit(".", 1)[-1] in ("log_step", "offset", "log_tau", "ready")
