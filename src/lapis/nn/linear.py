"""A linear layer whose weights may be quantized."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from lapis.config import FLOAT_WEIGHTS
from lapis.nn.quantizer import WeightQuantizer


class Linear(nn.Linear):
    """y = x W^T + b, with W on a learned integer grid where `bits` is below 32."""

    def __init__(self, inputs: int, outputs: int, bits: int) -> None:
        super().__init__(inputs, outputs)
        self.quantizer = None if bits == FLOAT_WEIGHTS else WeightQuantizer(outputs, bits)

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight if self.quantizer is None else self.quantizer(self.weight)
        return F.linear(x, weight, self.bias)
