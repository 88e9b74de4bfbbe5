"""QKFormer: keys masked by queries in the first blocks, spiking self-attention in the others."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lapis.config import LapisConfig
from lapis.nn.relations.base import Mixer
from lapis.nn.relations.gained import Gained
from lapis.nn.relations.ssa import SpikingSelfAttention
from lapis.nn.relations.straight_through import gate
from lapis.relations.qkformer import QkFormerRule, early_blocks


class QkToken(Gained):
    """y_i = g_h k_i [|q_i| >= theta_h]: a token passes its key if its query has enough spikes; no token sees another.

    theta starts at the mean of |q_i|, the sum of magnitudes, in the first data.
    """

    on_codes = True
    rule = QkFormerRule

    def __init__(self, config: LapisConfig) -> None:
        super().__init__(config)
        self.log_threshold = nn.Parameter(torch.zeros(config.heads, 1, 1))

    def gates(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return gate(_sums(q), self.log_threshold.exp())

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.gain * self.gates(q, k, v) * k

    @torch.no_grad()
    def calibrate(self, q: Tensor, k: Tensor, v: Tensor) -> None:
        self.log_threshold.copy_(_sums(q).mean(dim=(0, 2), keepdim=True)[0].clamp_min(1).log())


class QkFormer(SpikingSelfAttention):
    """`QkToken` in the first 30 % of the blocks, `SpikingSelfAttention` after them."""

    rule = QkFormerRule

    @classmethod
    def for_block(cls, config: LapisConfig, block: int) -> Mixer:
        return QkToken(config) if block < early_blocks(config.depth) else cls(config)


def _sums(codes: Tensor) -> Tensor:
    return codes.abs().sum(dim=-1, keepdim=True)
