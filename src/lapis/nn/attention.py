"""Lapis attention: queries and keys are compared by their first-spike latencies; values are spikes."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lapis.config import LapisConfig
from lapis.nn.linear import Linear
from lapis.nn.quantizer import activation_quantizer, as_integers, quantized, required
from lapis.nn.relations import make_relation
from lapis.trace import Point, Trace


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
