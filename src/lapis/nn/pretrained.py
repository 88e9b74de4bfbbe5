"""Import backbones: DeiT, DeiT-III, ViT, DINOv2, BEiT and BEiTv2 weights with the names of timm or of Hugging Face
transformers, for any image size and number of classes.
"""

from __future__ import annotations

import importlib
import math
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lapis._util import run_layout as runs
from lapis.config import LapisConfig
from lapis.errors import LapisError
from lapis.nn.checkpoint import check_tensors, read_tensors
from lapis.nn.model import LapisViT
from lapis.nn.quantizer import Calibrated
from lapis.nn.relations import Mixer
from lapis.positions import CLASS_ENTRIES
from lapis.trace import Trace

# Channels of a head in every published DeiT, ViT and BEiT.
PUBLISHED_HEAD_WIDTH = 64
# Tensors that are derived from others, or that Lapis does not use, in published files.
DERIVED = re.compile(r"(relative_position_index|attn\.k_bias|rel_pos_bias\.relative_position_index|^mask_token)$")
# What published backbones have and a LapisViT does not: a tensor that tells, what it is, and what to use instead.
MISSING = {
    "reg_token": ("register tokens", "the same DINOv2 without 'reg4' in its name"),
    "register_tokens": ("register tokens", "the same DINOv2 without registers"),
    "norm_pre.weight": ("a norm before its first block, as in CLIP", "a DeiT, ViT, DINOv2 or BEiT"),
    "attn_pool.latent": ("attention pooling, as in SigLIP", "a DeiT, ViT, DINOv2 or BEiT"),
    "blocks.0.attn.q_norm.weight": ("norms of queries and keys", "a DeiT, ViT, DINOv2 or BEiT"),
    "blocks.0.mlp.fc1_g.weight": ("gated hidden layers (SwiGLU)", "a smaller model of the family, with GELU"),
    "blocks.0.mlp.w12.weight": ("gated hidden layers (SwiGLU)", "a smaller model of the family, with GELU"),
}

# The names of Hugging Face transformers (ViT, DeiT, DINOv2, BEiT), old and new, and timm's, applied in turn.
RENAMED = tuple(
    (re.compile(theirs), timms)
    for theirs, timms in (
        (r"^(vit|deit|beit|dinov2(_with_registers)?)\.", ""),
        (r"^embeddings\.", ""),
        (r"^position_embeddings$", "pos_embed"),
        (r"^distillation_token$", "dist_token"),
        (r"^patch_embeddings\.projection", "patch_embed.proj"),
        (r"^(encoder\.)?layers?\.", "blocks."),
        (r"(attention\.)+", "attn."),
        (r"(attn\.)?relative_position_bias\.relative", "attn.relative"),
        (r"attn\.([qkv])(uery|ey|alue|_proj)\b", r"attn.\1"),
        (r"attn\.(output\.dense|o_proj)", "attn.proj"),
        (r"intermediate\.dense", "mlp.fc1"),
        (r"(?<=\d)\.output\.dense", ".mlp.fc2"),
        (r"mlp\.(weights_in|gate_proj)", "mlp.w12"),
        (r"layernorm_before", "norm1"),
        (r"layernorm_after", "norm2"),
        (r"lambda_([12])$", r"gamma_\1"),
        (r"layer_scale([12])\.lambda1$", r"ls\1.gamma"),
        (r"^pooler\.layernorm", "fc_norm"),
        (r"^layernorm", "norm"),
        (r"^(cls_)?classifier", "head"),
        (r"^distillation_classifier", "head_dist"),
    )
)
TAU = "attn.relation.log_tau"
# Axes of the tensors whose shapes tell the sizes of a network.
AXES = {
    "patch_embed.proj.weight": 4,
    "pos_embed": 3,
    "blocks.0.mlp.fc1.weight": 2,
    "blocks.0.attn.relative_position_bias_table": 2,
    "head.weight": 2,
}


class WideHeadViT(LapisViT):
    """A dense network whose classifier reads two things, which no deployed one does: it can teach.

    They are the class token and a distillation token (DeiT), or the class token and the mean of the patches (DINOv2).
    """

    def __init__(self, config: LapisConfig, distilled: bool) -> None:
        super().__init__(config)
        self.head = torch.nn.Linear(2 * config.width, config.classes)
        self.dist_token = torch.nn.Parameter(torch.zeros(1, 1, config.width)) if distilled else None

    def embed(self, images: Tensor) -> Tensor:
        """The distillation token comes last: attention does not see the order of tokens."""
        x = super().embed(images)
        return x if self.dist_token is None else torch.cat([x, self.dist_token.expand(len(x), -1, -1)], dim=1)

    def _tokens(self, images: Tensor, trace: Trace | None, taps: Sequence[int]) -> tuple[Tensor, list[Tensor]]:
        x, features = super()._tokens(images, trace, taps)
        # A student has no distillation token to compare.
        return x, features if self.dist_token is None else [tokens[:, :-1] for tokens in features]

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        other = x[:, 1:].mean(dim=1) if self.dist_token is None else x[:, -1]
        pooled = torch.cat([x[:, 0], other], dim=-1)
        return pooled if pre_logits else self.head(pooled)

    def pool(self, x: Tensor) -> Tensor:
        return self.forward_head(self.norm(x), pre_logits=True)


def load_backbone(
    source: str | Path | torch.nn.Module, config: LapisConfig | None = None, image_size: int | None = None
) -> LapisViT:
    """A LapisViT with the weights of `source`, in evaluation mode and not yet calibrated.

    source: a safetensors or .pth file, a model of timm or transformers, or a timm name (which downloads). Without
    `config` the network is the dense one that the weights belong to, at their image size or at another: dot product, no
    quantizers. With it, everything but the style and the sizes of the backbone is free: relation, window, image size,
    number of classes.
    """
    tensors = backbone_tensors(source)
    if config is None:
        config = dense_config(tensors, transformers_facts(source).get("num_attention_heads"))
        config = config if image_size is None else config.replace(image_size=image_size)
        wide = tensors["head.weight"].shape[1] == 2 * config.width
        model = WideHeadViT(config, "dist_token" in tensors) if wide else LapisViT(config)
    else:
        model = LapisViT(config)
    import_weights(model, tensors, type(source).__name__ if isinstance(source, torch.nn.Module) else source)
    return model.eval()


def transformers_facts(source: str | Path | torch.nn.Module) -> dict[str, Any]:
    """The config.json of transformers, from beside a file or from a model; empty where there is none."""
    if isinstance(source, torch.nn.Module):
        config: Any = getattr(source, "config", None)
        facts = config.to_dict() if hasattr(config, "to_dict") and hasattr(config, "num_attention_heads") else {}
    else:
        facts = runs.transformers_config(Path(source))
    if facts.get("hidden_act", "gelu") != "gelu":
        raise LapisError(f"hidden_act={facts['hidden_act']!r} is not the activation of a LapisViT; use one with gelu")
    return facts


def backbone_tensors(source: str | Path | torch.nn.Module) -> dict[str, Tensor]:
    """The tensors of a file, of a model, or of a timm model by name, with timm's names."""
    if isinstance(source, torch.nn.Module):
        return _with_wide_head(timm_names(source.state_dict()))
    path = Path(source)
    if path.is_file() or path.suffix in (".safetensors", ".pth", ".pt", ".bin"):
        return _with_wide_head(timm_names(read_tensors(path)[0]))
    return backbone_tensors(_timm_by_name(str(source)))


def _with_wide_head(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a DeiT with a distillation token as those of a WideHeadViT; others as they are.

    Its logits are those of the class token, or the mean of those of both tokens where there is a second classifier.
    """
    if "dist_token" not in tensors:
        return tensors
    tensors = dict(tensors)
    try:
        positions, weight = tensors["pos_embed"], tensors.get("head.weight")
        tensors["dist_token"] = tensors["dist_token"] + positions[:, 1:2]
        tensors["pos_embed"] = torch.cat([positions[:, :1], positions[:, 2:]], dim=1)
        if weight is not None:
            second = tensors.pop("head_dist.weight", None)
            if second is not None:
                tensors["head.bias"] = (tensors["head.bias"] + tensors.pop("head_dist.bias")) / 2
            halves = (weight, torch.zeros_like(weight)) if second is None else (weight / 2, second / 2)
            tensors["head.weight"] = torch.cat(halves, dim=1)
    except (IndexError, KeyError, RuntimeError) as error:
        raise LapisError(f"positions, classifiers and distillation token do not fit each other: {error}") from error
    return tensors


def timm_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors with timm's names, queries, keys and values in one; those of timm are returned as they are."""
    if not any(name.endswith("patch_embeddings.projection.weight") for name in tensors):
        return dict(tensors)
    renamed = {}
    for name, tensor in tensors.items():
        for theirs, timms in RENAMED:
            name = theirs.sub(timms, name)
        # A tanh layer behind the class token, which classifiers do not have.
        if not name.startswith("pooler."):
            renamed[name] = tensor
    for prefix in [name.removesuffix("q.weight") for name in renamed if name.endswith("attn.q.weight")]:
        for kind in ("weight", "bias"):
            # BEiT has no bias of keys, and some have none at all.
            none = torch.zeros(len(renamed[f"{prefix}proj.weight"]))
            parts = [renamed.pop(f"{prefix}{letter}.{kind}", none) for letter in "qkv"]
            renamed[f"{prefix}qkv.{kind}"] = torch.cat(parts)
    if "blocks.0.attn.relative_position_bias_table" in renamed and "norm.weight" in renamed:
        raise LapisError("this BEiT reads its class token; a LapisViT averages patches (use_mean_pooling=true)")
    for name in [name for name in renamed if name.endswith(TAU)]:
        renamed[name.replace("log_tau", "ready")] = torch.tensor(True)
    return renamed


def dense_config(tensors: Mapping[str, Tensor], heads: int | None = None) -> LapisConfig:
    """The dense network that timm-named tensors belong to, found from their shapes.

    Tensors do not tell the number of heads; without `heads` it is that of published networks.
    """
    check_importable(tensors)
    if "head.weight" not in tensors:
        raise LapisError("these weights have no classifier; pass a configuration with the number of your classes")
    width, channels, patch, _ = tensors["patch_embed.proj.weight"].shape
    blocks = {match[1] for name in tensors if (match := re.match(r"blocks\.(\d+)\.", name))}
    beit = "blocks.0.attn.relative_position_bias_table" in tensors
    # Trained in transformers by lapis.bridges.transformers.
    laplacian = f"blocks.0.{TAU}" in tensors
    if beit and laplacian:
        raise LapisError(
            "a BEiT with tau in real units cannot be imported: Lapis stores its position bias as whole steps"
        )
    if beit:
        entries = tensors["blocks.0.attn.relative_position_bias_table"].shape[0]
        grid = (round((entries - CLASS_ENTRIES) ** 0.5) + 1) // 2
        heads = tensors["blocks.0.attn.relative_position_bias_table"].shape[1]
    else:
        if "pos_embed" not in tensors:
            raise LapisError("no tensor 'pos_embed': these are not the weights of a ViT or DeiT")
        # With or without a position of the class token, which adds one to a square.
        grid = math.isqrt(tensors["pos_embed"].shape[1])
        heads = heads or max(1, width // PUBLISHED_HEAD_WIDTH)
    return LapisConfig(
        style="beit" if beit else "vit",
        image_size=grid * patch,
        patch_size=patch,
        classes=tensors["head.weight"].shape[0],
        width=width,
        depth=len(blocks),
        heads=heads,
        mlp_ratio=tensors["blocks.0.mlp.fc1.weight"].shape[0] // width,
        relation="laplacian" if laplacian else "dot",
        quantize=False,
        image_channels=channels,
        layer_scale=not beit and "blocks.0.ls1.gamma" in tensors,
    )


def check_importable(tensors: Mapping[str, Tensor], source: object = "this backbone") -> None:
    """Raise an error that says what a LapisViT lacks to hold these weights."""
    for name, (what, instead) in MISSING.items():
        if name in tensors:
            raise LapisError(f"{source} has {what} ({name!r}), which a LapisViT has not; use {instead}")
    for name in ("cls_token", "patch_embed.proj.weight", "blocks.0.mlp.fc1.weight"):
        if name not in tensors:
            raise LapisError(f"no tensor {name!r}: these are not the weights of a ViT, DeiT or BEiT classifier")
    for name, axes in AXES.items():
        shape = tuple(tensors[name].shape) if name in tensors else (1,) * axes
        if len(shape) != axes or 0 in shape:
            raise LapisError(f"{source}: {name} has shape {shape}; it needs {axes} axes, none of them empty")


@torch.no_grad()
def import_weights(model: LapisViT, tensors: Mapping[str, Tensor], source: object = "checkpoint") -> None:
    """Copy timm-named tensors into `model`; a tensor that is missing, unknown or misshapen is an error naming it.

    Positions are interpolated to the model's grid. A head for another number of classes is left as initialised. Weights
    for red, green and blue become those of another number of channels as timm makes them.
    """
    config = model.config
    check_importable(tensors, source)
    if "blocks.0.ls1.gamma" in tensors and not config.scales_layers:
        raise LapisError(f"{source} has layer scale; use a configuration with layer_scale=True")
    renamed = {_our_name(name): tensor for name, tensor in tensors.items() if not DERIVED.search(name)}
    _join_biases(renamed)
    if not isinstance(model, WideHeadViT):
        renamed.pop("dist_token", None)
        if "head.weight" in renamed and renamed["head.weight"].shape[1] == 2 * config.width:
            # What its class token says is where a student starts.
            renamed["head.weight"] = renamed["head.weight"][:, : config.width]
    first = "patch_embed.proj.weight"
    renamed[first] = resize_channels(renamed[first], config.image_channels)
    if not config.relative_position and "pos_embed" in renamed:
        renamed["pos_embed"] = resize_positions(renamed["pos_embed"], config.grid)
    for name in [name for name in renamed if name.endswith("relation.position.table")]:
        renamed[name] = resize_offsets(renamed[name], config.grid)
    own = model.state_dict()
    learned_here = set(local_tensors(model))
    if config.quantize:
        # A tau of real values says nothing of codes.
        renamed = {name: tensor for name, tensor in renamed.items() if name not in learned_here}
    learned_here -= renamed.keys()
    if "head.weight" not in renamed or renamed["head.weight"].shape[0] != config.classes:
        learned_here |= {"head.weight", "head.bias"}
        renamed = {name: tensor for name, tensor in renamed.items() if not name.startswith("head.")}
    expected = {name: tuple(tensor.shape) for name, tensor in own.items() if name not in learned_here}
    check_tensors(source, renamed, expected)
    model.load_state_dict({**{name: own[name] for name in learned_here}, **renamed})


def resize_channels(weight: Tensor, channels: int) -> Tensor:
    """Patch weights (D, 3, P, P) for another number of channels: summed for grey, else repeated at the same scale."""
    old = weight.shape[1]
    if old == channels:
        return weight
    if channels == 1:
        return weight.sum(dim=1, keepdim=True)
    repeated = weight.repeat(1, -(-channels // old), 1, 1)[:, :channels]
    return repeated * (old / channels)


def resize_positions(positions: Tensor, grid: int) -> Tensor:
    """Absolute position embeddings (1, 1 + g*g, D) at another grid, bicubic; the class token keeps its own.

    A class token without one (DeiT-III) gets zeros, which add nothing.
    """
    if math.isqrt(positions.shape[1]) ** 2 == positions.shape[1]:
        positions = torch.cat([torch.zeros_like(positions[:, :1]), positions], dim=1)
    old = round((positions.shape[1] - 1) ** 0.5)
    if old * old + 1 != positions.shape[1]:
        raise LapisError(f"pos_embed has {positions.shape[1]} tokens, which is not a square grid and a class token")
    if old == grid:
        return positions
    patches = positions[:, 1:].float().reshape(1, old, old, -1).permute(0, 3, 1, 2)
    resized = F.interpolate(patches, size=(grid, grid), mode="bicubic", antialias=True, align_corners=False)
    return torch.cat([positions[:, :1], resized.permute(0, 2, 3, 1).flatten(1, 2).to(positions.dtype)], dim=1)


def resize_offsets(table: Tensor, grid: int) -> Tensor:
    """A relative position table ((2 g - 1)**2 + 3, H) at another grid, bicubic; class entries keep their values.

    Offsets are stretched with the image: the farthest pair of patches keeps the farthest bias.
    """
    old = round((table.shape[0] - CLASS_ENTRIES) ** 0.5)
    if old * old + CLASS_ENTRIES != table.shape[0]:
        raise LapisError(
            f"a relative position table of {table.shape[0]} rows is not a square of offsets and 3 class entries"
        )
    new = 2 * grid - 1
    if old == new:
        return table
    offsets = table[:-CLASS_ENTRIES].float().reshape(1, old, old, -1).permute(0, 3, 1, 2)
    resized = F.interpolate(offsets, size=(new, new), mode="bicubic", align_corners=True)
    return torch.cat([resized.permute(0, 2, 3, 1).flatten(0, 2).to(table.dtype), table[-CLASS_ENTRIES:]])


def _our_name(name: str) -> str:
    name = name.replace("attn.relative_position_bias_table", "attn.relation.position.table")
    name = re.sub(r"\.ls([12])\.gamma$", r".gamma_\1", name)
    return name.replace("fc_norm.", "norm.") if name.startswith("fc_norm.") else name


def _join_biases(tensors: dict[str, Tensor]) -> None:
    """BEiT has separate biases for q and v and none for k; join them, with zeros for k."""
    for name in [name for name in tensors if name.endswith("attn.q_bias")]:
        prefix = name.removesuffix("q_bias")
        if prefix + "v_bias" not in tensors:
            raise LapisError(f"{name} is there without {prefix}v_bias")
        q, v = tensors.pop(name), tensors.pop(prefix + "v_bias")
        tensors[prefix + "qkv.bias"] = torch.cat([q, torch.zeros_like(q), v])


def local_tensors(model: LapisViT) -> dict[str, torch.nn.Module]:
    """The tensors that no dense checkpoint has, and their modules: steps, offsets, parameters of a relation."""
    owners: dict[str, torch.nn.Module] = {}
    for prefix, module in model.named_modules():
        if isinstance(module, (Calibrated, Mixer)):
            own: list[tuple[str, Any]] = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
            owners |= {f"{prefix}.{name}": module for name, _ in own}
    return {name: owners[name] for name in owners.keys() & model.state_dict().keys()}


def import_timm() -> ModuleType:
    """timm, also beside a torchvision that does not fit torch; an error that says what to do where it is missing."""
    try:
        return import_beside_torchvision("timm")
    except (ImportError, RuntimeError) as error:
        raise LapisError(f"timm cannot be imported: pip install timm ({error})") from error


# What was declared for a torchvision that does not fit; torch takes a declaration only once.
_declared: list[str] = []


def import_beside_torchvision(name: str) -> ModuleType:
    """A module that imports torchvision or torchaudio, also where these do not fit torch.

    Those of the package index are built for CUDA. Beside a CPU torch, importing torchvision fails with "operator
    torchvision::nms does not exist", and torchaudio does not load. Nothing here uses either, so the operators are
    declared, and an empty module stands for torchaudio.
    """
    try:
        return importlib.import_module(name)
    except RuntimeError as error:
        if "torchvision::" not in str(error) or _declared:
            raise
        for operator in ("nms", "qnms"):
            schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            torch.library.define(f"torchvision::{operator}", schema)
        _declared.append("torchvision")
    except OSError as error:
        if "torchaudio" not in str(error):
            raise
        empty = sys.modules["torchaudio"] = ModuleType("torchaudio")
        empty.__spec__ = ModuleSpec("torchaudio", None)
    return import_beside_torchvision(name)


def _timm_by_name(name: str) -> torch.nn.Module:
    try:
        timm = import_timm()
    except LapisError as error:
        raise LapisError(f"{name!r} is not a file, and for a name {error}") from error
    try:
        model: torch.nn.Module = timm.create_model(name, pretrained=True)
    except Exception as error:
        raise LapisError(f"timm cannot give {name!r}: {error}; with no network, pass a weights file instead") from error
    return model
