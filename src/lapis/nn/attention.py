"""Lapis attention: queries and keys are compared by their first-spike latencies; values are spikes.

`LapisAttention` is the layer for anybody's transformer; `replace_attention` puts it into a timm ViT.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lapis.config import Coding, CodingByPoint, LapisConfig
from lapis.errors import LapisError
from lapis.nn.quantizer import Linear, activation_quantizer, as_integers, quantized, required
from lapis.nn.relations import make_relation
from lapis.trace import Point, Trace, Watched

# Parts of timm's attention that have no place in ours: (attribute, what it is).
NO_PLACE = (
    ("q_norm", "a norm of queries"),
    ("k_norm", "a norm of keys"),
    ("norm", "a norm of the output"),
    ("gate", "a gate"),
)


class Attention(nn.Module):
    """Y = rowscale(A(q, k)) v, then the output projection.

    q and k share one quantizer, so the distance of their latencies is a distance of values.
    """

    def __init__(self, config: LapisConfig, index: int) -> None:
        super().__init__()
        self.index, self.heads = index, config.heads
        self.qkv = Linear(config.width, 3 * config.width, config.weight_bits)
        self.proj = Linear(config.width, config.width, config.weight_bits)
        self.relation = make_relation(config, index)
        # Sees q, k and v before and after their quantizers; `lapis.nn.calibrate` sets it.
        self.observer: Callable[[Attention, Tensor, Tensor, Tensor], None] | None = None
        self.input = self.qk = self.v = self.readout = None
        if config.quantize:
            self.input = activation_quantizer(config, "attention_in", index)
            self.qk = activation_quantizer(config, "q", index)
            self.v = activation_quantizer(config, "v", index)
            if config.readout == "spikes":
                self.readout = activation_quantizer(config, "readout", index)

    def forward(self, x: Tensor, trace: Trace | None = None) -> Tensor:
        """x (B, N, D) -> (B, N, D)."""
        x = quantized(self.input, x, trace, self.index, "attention_in")  # (B, N, D)
        qkv = self.split_heads(self.qkv(x))  # (3, B, H, N, C)
        # Distance, exponential and row sums stay in float32 even under autocast.
        with torch.autocast(x.device.type, enabled=False):
            qk, v = self.code(qkv.float(), trace)  # (2, B, H, N, C), (B, H, N, C)
            if self.observer is not None:
                self.observer(self, qkv.float(), qk, v)
            y = self.mix(qk, v)  # (B, H, N, C)
        y = join_heads(y)  # (B, N, D)
        y = quantized(self.readout, y, trace, self.index, "readout")  # (B, N, D)
        out: Tensor = self.proj(y)  # (B, N, D)
        return out

    def split_heads(self, qkv: Tensor) -> Tensor:
        """(B, N, 3 D) -> (3, B, H, N, C)."""
        split: Tensor = qkv.unflatten(-1, (3, self.heads, -1))
        return split.permute(2, 0, 3, 1, 4).contiguous()

    def code(self, qkv: Tensor, trace: Trace | None = None) -> tuple[Tensor, Tensor]:
        """Queries and keys (2, B, H, N, C) as the relation takes them, and the values (B, H, N, C)."""
        qk, v = qkv[:2], qkv[2]
        if self.qk is None or self.v is None:
            return qk, v
        if trace is None:
            return (
                self.qk.codes(qk) if self.relation.on_codes else self.qk(qk),
                self.v.codes(v) if self.relation.values_on_codes else self.v(v),
            )
        codes, v_codes = self.qk.codes(qk), self.v.codes(v)
        watched: dict[Point, Tensor] = {"q": codes[0], "k": codes[1], "v": v_codes}
        for point, seen in watched.items():
            trace.note(self.index, point, as_integers(join_heads(seen)))
        return self.taken(codes, v_codes)

    def taken(self, qk: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Codes (2, B, H, N, C) and (B, H, N, C) as the relation takes them: as they are, or as what they stand for."""
        return (
            qk if self.relation.on_codes else required(self.qk).value(qk),
            v if self.relation.values_on_codes else required(self.v).value(v),
        )

    def mix(self, qk: Tensor, v: Tensor) -> Tensor:
        """The values mixed by the relation (B, H, N, C)."""
        offset = None if self.v is None or self.relation.values_on_codes else self.v.offset
        # A power-of-two row has a mass near one, not one; an offset is not mixed, so it folds into the next bias.
        mixed: Tensor = self.relation.mix(qk[0], qk[1], v if offset is None else v - offset)
        return mixed if offset is None else mixed + offset


@torch.no_grad()
def softmax_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
    """softmax(q k^T / sqrt C + b) v: what the dense network makes of (B, H, N, C), with biases b (H, N, N)."""
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias)


def join_heads(x: Tensor) -> Tensor:
    """(B, H, N, C) -> (B, N, H * C)."""
    return x.transpose(1, 2).flatten(2)


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
