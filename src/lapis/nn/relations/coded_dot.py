"""The attention of the quantized networks that SpikeZIP-TF and MST convert."""

from __future__ import annotations

import torch
from torch import Tensor

from lapis.config import LapisConfig
from lapis.nn.quantizer import ActivationQuantizer
from lapis.nn.relations.dot import DotProduct
from lapis.relations.coded_dot import CodedDotRule


class CodedDot(DotProduct):
    """W_ij = Q(softmax_j(q_i . k_j / sqrt(C))), Q a learned ladder of T steps from 0, the same for all heads."""

    rule = CodedDotRule

    def __init__(self, config: LapisConfig) -> None:
        super().__init__(config)
        self.ladder = ActivationQuantizer(config.window, "unsigned")

    def weights(self, q: Tensor, k: Tensor) -> Tensor:
        coded: Tensor = self.ladder(torch.softmax(self(q, k), dim=-1))
        return coded
