"""Lapis attention: queries and keys meet through their first-spike latencies, values stay spikes."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lapis.config import LapisConfig
from lapis.nn.linear import Linear
from lapis.nn.quantizer import ActivationQuantizer
from lapis.nn.relation import RELATIONS
from lapis.trace import Trace


class Attention(nn.Module):
    """Y = rowscale(A(q, k)) v, then the output projection.

    q and k share one quantizer, so the distance of their latencies is a distance of values.
    """

    def __init__(self, config: LapisConfig, index: int) -> None:
        super().__init__()
        self.index, self.heads = index, config.heads
        self.qkv = Linear(config.width, 3 * config.width, config.weight_bits)
        self.proj = Linear(config.width, config.width, config.weight_bits)
        self.relation = RELATIONS[config.relation](config)
        self.input = self.qk = self.v = self.readout = None
        if config.quantize:
            self.input = ActivationQuantizer(config.window, config.modes.attention_in)
            self.qk = ActivationQuantizer(config.window, config.modes.qk)
            self.v = ActivationQuantizer(config.window, config.modes.v)
            if config.readout == "spikes":
                self.readout = ActivationQuantizer(config.window, config.modes.readout)

    def forward(self, x: Tensor, trace: Trace | None = None) -> Tensor:
        """(B, N, D) -> (B, N, D)."""
        batch, tokens, width = x.shape
        if trace is not None and self.input is not None:
            trace.note(self.index, "attention_in", self.input.integers(x))
        x = x if self.input is None else self.input(x)
        qkv = self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).contiguous()
        if trace is not None and self.qk is not None and self.v is not None:
            trace.note(self.index, "q", self.qk.integers(_join_heads(qkv[0])))
            trace.note(self.index, "k", self.qk.integers(_join_heads(qkv[1])))
            trace.note(self.index, "v", self.v.integers(_join_heads(qkv[2])))
        y = _join_heads(self._mix(qkv[:2], qkv[2]))
        if self.readout is not None:
            if trace is not None:
                trace.note(self.index, "readout", self.readout.integers(y))
            y = self.readout(y)
        out: Tensor = self.proj(y)
        return out

    def _mix(self, qk: Tensor, v: Tensor) -> Tensor:
        """sum_j W_ij v_j (B, H, N, C), in float32 whatever autocast says."""
        with torch.autocast(qk.device.type, enabled=False):
            qk, v = qk.float(), v.float()
            if self.qk is not None:
                qk = self.qk.codes(qk) if self.relation.on_codes else self.qk(qk)
            shift = None if self.v is None else self.v.offset
            v = v if self.v is None else self.v(v)
            # A power-of-two row has a mass near one, not one; an offset is not mixed, so it folds into the next bias.
            mixed: Tensor = self.relation.mix(qk[0], qk[1], v if shift is None else v - shift)
            return mixed if shift is None else mixed + shift


def _join_heads(x: Tensor) -> Tensor:
    """(B, H, N, C) -> (B, N, H * C)."""
    return x.transpose(1, 2).flatten(2)
