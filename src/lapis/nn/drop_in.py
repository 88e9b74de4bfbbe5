"""Lapis attention as a layer for anybody's transformer, and the exchange of a timm ViT's attention for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lapis.config import Coding, CodingByPoint, LapisConfig
from lapis.errors import LapisError
from lapis.nn.attention import Attention
from lapis.trace import Trace, Watched

# Parts of timm's attention that have no place in ours: (attribute, what it is).
NO_PLACE = (
    ("q_norm", "a norm of queries"),
    ("k_norm", "a norm of keys"),
    ("norm", "a norm of the output"),
    ("gate", "a gate"),
)


class LapisAttention(Attention):
    """Self-attention by spike timing: (batch, tokens, dim) -> (batch, tokens, dim), for any number of tokens.

    `coding` says how negative values are coded. `fields` are fields of `LapisConfig`: relation, row_scale, readout,
    weight_bits, min_code and others. With row_scale="pow2", readout="spikes" and weight_bits=6 it is as deployed.
    Steps and time constants are found by `lapis.nn.calibrate(model, images)`, before it is used.
    """

    def __init__(self, dim: int, heads: int, window: int = 15, coding: Coding = "signed", **fields: Any) -> None:
        codings = CodingByPoint.all(coding)
        config = LapisConfig(width=dim, depth=1, heads=heads, window=window, coding=codings).replace(**fields)
        if config.relative_position:
            raise LapisError("style='beit' has positions on a grid, which a layer does not know; use style='vit'")
        super().__init__(config, 0)
        self.config = config

    def forward(
        self, x: Tensor, trace: Trace | None = None, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        """The mask is there because timm's blocks pass it; only None has a meaning."""
        if attn_mask is not None or is_causal:
            raise LapisError("LapisAttention has no mask: every token sees all tokens; pass attn_mask=None")
        if x.ndim != 3 or x.shape[-1] != self.config.width:
            raise LapisError(f"x has shape {tuple(x.shape)}; this layer takes (batch, tokens, {self.config.width})")
        if not torch.compiler.is_compiling() and bool(x.isnan().any()):
            raise LapisError(
                "x holds NaN, which has no spike time; look for it in the layers and images before this one"
            )
        return super().forward(x, trace)

    @torch.no_grad()
    def watch(self, x: Tensor) -> Watched:
        """The output, and the codes of `trace[0, point]` for attention_in, q, k, v and, where it spikes, readout."""
        if not self.config.quantize:
            raise LapisError("a layer with quantize=False has no codes to watch")
        trace = Trace(self.config.window)
        return Watched(self(x, trace), trace)


def replace_attention(model: nn.Module, window: int = 15, coding: Coding = "signed", **fields: Any) -> int:
    """Exchange every attention of a timm ViT for `LapisAttention` with the same weights, in place; returns how many.

    A model that has a part without a counterpart is refused and left as it was.
    """
    found = [
        (parent, name, child)
        for parent in model.modules()
        for name, child in parent.named_children()
        if type(child).__name__ == "Attention" and type(child).__module__.startswith("timm.")
    ]
    if not found:
        others = sorted({type(part).__name__ for part in model.modules() if "attention" in type(part).__name__.lower()})
        raise LapisError(
            f"{type(model).__name__} has no timm Attention to exchange"
            + (f", but {', '.join(others)}, which compute something else" if others else "")
            + "; use a ViT such as vit_small_patch14_reg4_dinov2, or put LapisAttention in by hand"
        )
    made = [(parent, name, _counterpart(child, window, coding, fields)) for parent, name, child in found]
    for parent, name, layer in made:
        setattr(parent, name, layer)
    return len(made)


@torch.no_grad()
def _counterpart(old: Any, window: int, coding: Coding, fields: dict[str, Any]) -> LapisAttention:
    for attribute, what in NO_PLACE:
        if not isinstance(getattr(old, attribute, None), (nn.Identity, type(None))):
            raise LapisError(f"this attention has {what} ({attribute}), which LapisAttention does not have")
    dim, (outputs, inputs) = old.qkv.in_features, old.proj.weight.shape
    if (old.qkv.out_features, outputs, inputs) != (3 * dim, dim, dim):
        raise LapisError(
            f"this attention has other widths inside than its input of {dim}; LapisAttention has one width"
        )
    layer = LapisAttention(dim, old.num_heads, window, coding, **fields).to(old.qkv.weight.device)
    for new, given in ((layer.qkv, old.qkv), (layer.proj, old.proj)):
        new.weight.copy_(given.weight)
        # Thresholds need a bias of their own, so a missing one becomes zeros.
        new.bias.copy_(given.bias) if given.bias is not None else new.bias.zero_()
    return layer.train(old.training)
