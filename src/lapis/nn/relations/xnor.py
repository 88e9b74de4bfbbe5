"""The alpha-XNOR similarity of rate trains."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lapis.config import LapisConfig
from lapis.nn.relations.gained import GainedPairs
from lapis.nn.relations.ssa import magnitudes
from lapis.ops.l1_distance.torch_native import l1_distance
from lapis.relations.xnor import XnorRule


class AlphaXnor(GainedPairs):
    """W_ij = g_h (a_h T C + (1 - a_h)/2 (|q_i| + |k_j|) - (1 + a_h)/2 D_ij), D the l1 distance, a_h learned in 0..1.

    This is the sum over steps and channels of q k + a (1 - q)(1 - k) on rate trains: spikes in common count one,
    silence in common a. With signed codes C counts ON and OFF channels.
    """

    on_codes = True
    rule = XnorRule

    def __init__(self, config: LapisConfig) -> None:
        super().__init__(config)
        self.trains = config.head_width * (2 if self.signed else 1)
        self.logit = nn.Parameter(torch.zeros(config.heads))

    @property
    def alpha(self) -> Tensor:
        """The weight of silence in common, (H, 1, 1)."""
        return torch.sigmoid(self.logit).view(-1, 1, 1)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        alpha = self.alpha
        most = alpha * (self.window * self.trains)
        return most + (1 - alpha) / 2 * magnitudes(q, k) - (1 + alpha) / 2 * l1_distance(q, k)
