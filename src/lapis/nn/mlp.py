"""The spiking feed-forward network of a block."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from lapis.config import LapisConfig
from lapis.nn.linear import Linear
from lapis.nn.quantizer import ActivationQuantizer
from lapis.trace import Trace


class FeedForward(nn.Module):
    """fc2(Q(gelu(fc1(Q(x)))))."""

    def __init__(self, config: LapisConfig, index: int) -> None:
        super().__init__()
        self.index = index
        self.fc1 = Linear(config.width, config.hidden, config.weight_bits)
        self.fc2 = Linear(config.hidden, config.width, config.weight_bits)
        self.input = self.hidden = None
        if config.quantize:
            self.input = ActivationQuantizer(config.window, config.modes.mlp_in)
            self.hidden = ActivationQuantizer(config.window, config.modes.mlp_hidden)

    def forward(self, x: Tensor, trace: Trace | None = None) -> Tensor:
        """(B, N, D) -> (B, N, D)."""
        if self.input is None or self.hidden is None:
            plain: Tensor = self.fc2(F.gelu(self.fc1(x)))
            return plain
        if trace is not None:
            trace.note(self.index, "mlp_in", self.input.integers(x))
        hidden = F.gelu(self.fc1(self.input(x)))
        if trace is not None:
            trace.note(self.index, "mlp_hidden", self.hidden.integers(hidden))
        out: Tensor = self.fc2(self.hidden(hidden))
        return out
