"""The spiking feed-forward network of a block."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from lapis.config import LapisConfig
from lapis.nn.linear import Linear
from lapis.nn.quantizer import activation_quantizer, quantized
from lapis.trace import Trace


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
