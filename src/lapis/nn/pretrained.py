"""Import backbones: DeiT, ViT, BEiT and BEiTv2 weights with timm's names, for any image size and number of classes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from lapis.config import LapisConfig
from lapis.errors import LapisError
from lapis.nn.calibrated import Calibrated
from lapis.nn.checkpoint import check_tensors, read_tensors
from lapis.nn.model import LapisViT
from lapis.nn.relations import Relation
from lapis.positions import CLASS_ENTRIES

# Channels of a head in every published DeiT, ViT and BEiT.
PUBLISHED_HEAD_WIDTH = 64
# Tensors that are derived from others, or that Lapis does not use, in published files.
DERIVED = re.compile(r"(relative_position_index|attn\.k_bias|rel_pos_bias\.relative_position_index)$")


def load_backbone(source: str | Path | torch.nn.Module, config: LapisConfig | None = None) -> LapisViT:
    """A LapisViT with the weights of `source`, in evaluation mode and not yet calibrated.

    source: a safetensors or .pth file, a timm model, or a timm name (which downloads). Without `config` the network is
    the dense one that the weights belong to: dot product, no quantizers. With it, everything but the style and the
    sizes of the backbone is free: relation, window, image size, number of classes.
    """
    tensors = backbone_tensors(source)
    model = LapisViT(config or dense_config(tensors))
    import_weights(model, tensors, name_of(source))
    return model.eval()


def name_of(source: str | Path | torch.nn.Module) -> str:
    return type(source).__name__ if isinstance(source, torch.nn.Module) else str(source)


def backbone_tensors(source: str | Path | torch.nn.Module) -> dict[str, Tensor]:
    """The tensors of a file, of a timm model, or of a timm model by name."""
    if isinstance(source, torch.nn.Module):
        return dict(source.state_dict())
    path = Path(source)
    if path.is_file() or path.suffix in (".safetensors", ".pth", ".pt", ".bin"):
        return read_tensors(path)[0]
    return dict(_timm_by_name(str(source)).state_dict())


def dense_config(tensors: Mapping[str, Tensor]) -> LapisConfig:
    """The dense network that timm-named tensors belong to, found from their shapes."""
    for name in ("cls_token", "patch_embed.proj.weight", "blocks.0.mlp.fc1.weight", "head.weight"):
        if name not in tensors:
            raise LapisError(f"no tensor {name!r}: these are not the weights of a ViT, DeiT or BEiT classifier")
    width, _, patch, _ = tensors["patch_embed.proj.weight"].shape
    blocks = {int(match[1]) for name in tensors if (match := re.match(r"blocks\.(\d+)\.", name))}
    beit = "blocks.0.attn.relative_position_bias_table" in tensors
    if beit:
        entries = tensors["blocks.0.attn.relative_position_bias_table"].shape[0]
        grid = (round((entries - CLASS_ENTRIES) ** 0.5) + 1) // 2
        heads = tensors["blocks.0.attn.relative_position_bias_table"].shape[1]
    else:
        grid = round((tensors["pos_embed"].shape[1] - 1) ** 0.5)
        heads = max(1, width // PUBLISHED_HEAD_WIDTH)
    return LapisConfig(
        style="beit" if beit else "vit",
        image_size=grid * patch,
        patch_size=patch,
        classes=tensors["head.weight"].shape[0],
        width=width,
        depth=len(blocks),
        heads=heads,
        mlp_ratio=tensors["blocks.0.mlp.fc1.weight"].shape[0] // width,
        relation="dot",
        quantize=False,
    )


@torch.no_grad()
def import_weights(model: LapisViT, tensors: Mapping[str, Tensor], source: object = "checkpoint") -> None:
    """Copy timm-named tensors into `model`; a tensor that is missing, unknown or misshapen is an error naming it.

    Positions are interpolated to the model's grid. A head for another number of classes is left as initialised.
    """
    config = model.config
    renamed = {_our_name(name): tensor for name, tensor in tensors.items() if not DERIVED.search(name)}
    _join_biases(renamed)
    if not config.relative_position and "pos_embed" in renamed:
        renamed["pos_embed"] = resize_positions(renamed["pos_embed"], config.grid)
    for name in [name for name in renamed if name.endswith("relation.position.table")]:
        renamed[name] = resize_offsets(renamed[name], config.grid)
    own = model.state_dict()
    learned_here = set(local_tensors(model))
    if "head.weight" in renamed and renamed["head.weight"].shape[0] != config.classes:
        learned_here |= {"head.weight", "head.bias"}
        del renamed["head.weight"], renamed["head.bias"]
    expected = {name: tuple(tensor.shape) for name, tensor in own.items() if name not in learned_here}
    check_tensors(source, renamed, expected)
    model.load_state_dict({**{name: own[name] for name in learned_here}, **renamed})


def resize_positions(positions: Tensor, grid: int) -> Tensor:
    """Absolute position embeddings (1, 1 + g*g, D) at another grid, bicubic; the class token keeps its own."""
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
        if isinstance(module, (Calibrated, Relation)):
            own: list[tuple[str, Any]] = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
            owners |= {f"{prefix}.{name}": module for name, _ in own}
    return {name: owners[name] for name in owners.keys() & model.state_dict().keys()}


def _timm_by_name(name: str) -> torch.nn.Module:
    try:
        import timm
    except (ImportError, RuntimeError) as error:  # a torchvision built for another torch raises the latter
        raise LapisError(
            f"{name!r} is not a file, and timm names need a timm that imports: pip install 'lapis-snn[timm]' ({error})"
            "; `lapis info` says whether torchvision fits torch"
        ) from error
    try:
        model: torch.nn.Module = timm.create_model(name, pretrained=True)
    except Exception as error:
        raise LapisError(f"timm cannot give {name!r}: {error}; with no network, pass a weights file instead") from error
    return model
