"""One transformer block; the residual stream is a membrane that does not spike."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lapis.config import NORM_EPS, LapisConfig
from lapis.nn.attention import Attention
from lapis.nn.quantizer import Linear, activation_quantizer, quantized
from lapis.trace import Trace

# BEiT's initial value for new networks; imported weights bring their own.
LAYER_SCALE_INIT = 0.1


class FeedForward(nn.Module):
    """fc2(Q(f(fc1(Q(x))))), f the activation function: GELU, or ReLU."""

    def __init__(self, config: LapisConfig, index: int) -> None:
        super().__init__()
        self.index = index
        self.activation = F.gelu if config.activation == "gelu" else F.relu
        self.fc1 = Linear(config.width, config.hidden, config.weight_bits)
        self.fc2 = Linear(config.hidden, config.width, config.weight_bits)
        self.input = self.hidden = None
        if config.quantize:
            self.input = activation_quantizer(config, "mlp_in", index)
            self.hidden = activation_quantizer(config, "mlp_hidden", index)

    def forward(self, x: Tensor, trace: Trace | None = None) -> Tensor:
        """x (B, N, D) -> (B, N, D)."""
        x = quantized(self.input, x, trace, self.index, "mlp_in")  # (B, N, D)
        hidden = self.activation(self.fc1(x))  # (B, N, R D)
        hidden = quantized(self.hidden, hidden, trace, self.index, "mlp_hidden")  # (B, N, R D)
        out: Tensor = self.fc2(hidden)  # (B, N, D)
        return out


class TransformerBlock(nn.Module):
    """x + g1 attention(norm(x)), then x + g2 mlp(norm(x)); g is 1 without layer scale.

    In training, each sample skips each of the two additions with the probability `drop_path`, and those that are made
    are enlarged so that their mean stays the same (stochastic depth). Evaluation and conversion know nothing of it.
    """

    def __init__(self, config: LapisConfig, index: int) -> None:
        super().__init__()
        self.drop_path = 0.0
        self.norm1 = nn.LayerNorm(config.width, eps=NORM_EPS)
        self.attn = Attention(config, index)
        self.norm2 = nn.LayerNorm(config.width, eps=NORM_EPS)
        self.mlp = FeedForward(config, index)
        self.gamma_1 = self.gamma_2 = None
        if config.scales_layers:
            self.gamma_1 = nn.Parameter(torch.full((config.width,), LAYER_SCALE_INIT))
            self.gamma_2 = nn.Parameter(torch.full((config.width,), LAYER_SCALE_INIT))

    def forward(self, x: Tensor, trace: Trace | None = None) -> Tensor:
        x = x + self._kept(self.attention_update(self.norm1(x), trace))
        return x + self._kept(_scaled(self.mlp(self.norm2(x), trace), self.gamma_2))

    def attention_update(self, x: Tensor, trace: Trace | None = None) -> Tensor:
        """What attention adds to the residual stream, from normed tokens (B, N, D)."""
        return _scaled(self.attn(x, trace), self.gamma_1)

    def _kept(self, x: Tensor) -> Tensor:
        if not self.training or self.drop_path == 0:
            return x
        keep = 1 - self.drop_path
        return x * (x.new_empty(len(x), 1, 1).bernoulli_(keep) / keep)


def _scaled(x: Tensor, gamma: Tensor | None) -> Tensor:
    return x if gamma is None else x * gamma
