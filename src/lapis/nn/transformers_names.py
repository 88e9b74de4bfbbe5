"""Weights with the names of Hugging Face transformers (ViT, DINOv2, BEiT), old and new, renamed to timm's."""

from __future__ import annotations

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from lapis.errors import LapisError

# Applied one after the other.
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
        (r"^classifier", "head"),
    )
)
TAU = "attn.relation.log_tau"


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
    if "head.weight" in renamed and renamed["head.weight"].shape[-1] != renamed["cls_token"].shape[-1]:
        # DINOv2's classifier also reads the mean of the patches: only the backbone can be used.
        del renamed["head.weight"], renamed["head.bias"]
    if "blocks.0.attn.relative_position_bias_table" in renamed and "norm.weight" in renamed:
        raise LapisError("this BEiT reads its class token; a LapisViT averages patches (use_mean_pooling=true)")
    for name in [name for name in renamed if name.endswith(TAU)]:
        renamed[name.replace("log_tau", "ready")] = torch.tensor(True)
    return renamed
