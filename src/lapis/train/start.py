"""Where first weights come from: a Lapis checkpoint, a run, a packaged model, a foreign backbone, or nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lapis.config import LapisConfig
from lapis.errors import LapisError
from lapis.nn.calibrated import Calibrated
from lapis.nn.checkpoint import check_tensors, load_network, read_tensors
from lapis.nn.model import LapisViT
from lapis.nn.pretrained import load_backbone, resize_offsets, resize_positions
from lapis.nn.quantizer import ActivationQuantizer, Quantizer
from lapis.nn.relation import DistanceRelation
from lapis.positions import CLASS_ENTRIES
from lapis.preprocess import Preprocess
from lapis.train.weights import find_weights


@dataclass(frozen=True)
class Opened:
    """A network ready to evaluate, and what its file says of it (nothing for foreign weights)."""

    model: LapisViT
    about: dict[str, Any] | None
    path: Path | None

    @property
    def preprocess(self) -> Preprocess:
        """What the file says of its images; for one that does not, ImageNet's rule at the network's size."""
        said = (self.about or {}).get("preprocess")
        return Preprocess(self.model.config.image_size) if said is None else Preprocess.from_dict(said)


def open_model(source: str) -> Opened:
    """The network that `source` holds, as it is: a Lapis network, or a dense one for foreign weights."""
    path = find_weights(source)
    if path is None:
        return Opened(load_backbone(source), None, None)
    if read_tensors(path)[1] is None:
        return Opened(load_backbone(path), None, path)
    model, about = load_network(path)
    return Opened(model, about, path)


def start_network(config: LapisConfig, source: str, generator_seed: int) -> LapisViT:
    """A network of `config` that starts from `source`; with no source, from random weights.

    Quantizers that the source has are kept where they still mean the same; the others are left to be calibrated.
    """
    torch.manual_seed(generator_seed)
    if not source:
        return LapisViT(config)
    path = find_weights(source)
    if path is None:
        return load_backbone(source, config)
    tensors, about = read_tensors(path)
    if about is None:
        return load_backbone(path, config)
    model = LapisViT(config)
    _carry_over(model, tensors, LapisConfig.from_dict(about["config"]), path)
    return model


@torch.no_grad()
def _carry_over(model: LapisViT, tensors: dict[str, Tensor], old: LapisConfig, path: Path) -> None:
    new, own = model.config, model.state_dict()
    for field in ("style", "width", "depth", "heads", "mlp_ratio", "patch_size"):
        if getattr(old, field) != getattr(new, field):
            raise LapisError(f"{path} has {field}={getattr(old, field)}, the recipe {getattr(new, field)}")
    tensors = dict(tensors)
    if "pos_embed" in tensors and old.grid != new.grid:
        tensors["pos_embed"] = resize_positions(tensors["pos_embed"], new.grid)
    for name in [name for name in tensors if name.endswith("relation.position.table")]:
        if tensors[name].shape[0] != (2 * new.grid - 1) ** 2 + CLASS_ENTRIES:
            tensors[name] = resize_offsets(tensors[name], new.grid)
    fresh = _changed_parts(model, old)
    if old.classes != new.classes:
        fresh |= {"head.weight", "head.bias"}
    # A part that only the old network has (a quantizer of another stage) is dropped; nothing else may be unknown.
    gone = {name for name in tensors.keys() - own.keys() if _belongs_to_quantizer(name)}
    kept = {name: tensor for name, tensor in tensors.items() if name not in fresh and name not in gone}
    missing_parts = {name for name in own.keys() - tensors.keys() if _belongs_to_quantizer(name)}
    fresh |= missing_parts
    check_tensors(path, kept, {name: tuple(tensor.shape) for name, tensor in own.items() if name not in fresh})
    model.load_state_dict({**{name: own[name] for name in fresh}, **kept})


def _changed_parts(model: LapisViT, old: LapisConfig) -> set[str]:
    """Tensors of quantizers and relations whose meaning differs from the old network's."""
    new, names = model.config, set()
    before = LapisViT(old)
    parts = {name: module for name, module in before.named_modules() if isinstance(module, Calibrated)}
    for name, module in model.named_modules():
        if not isinstance(module, Calibrated):
            continue
        twin = parts.get(name)
        same = type(twin) is type(module)
        if isinstance(module, Quantizer) and isinstance(twin, Quantizer):
            same = same and (module.low, module.high) == (twin.low, twin.high)
        if isinstance(module, ActivationQuantizer) and isinstance(twin, ActivationQuantizer):
            same = same and module.mode == twin.mode
        if isinstance(module, DistanceRelation):
            same = same and old.window == new.window and old.modes.qk == new.modes.qk
        if not same:
            names |= {f"{name}.{key}" for key in ("log_step", "offset", "log_tau", "ready")}
    return names & model.state_dict().keys()


def _belongs_to_quantizer(name: str) -> bool:
    return name.rsplit(".", 1)[-1] in ("log_step", "offset", "log_tau", "ready")
