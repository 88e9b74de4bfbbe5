"""Spike-driven self-attention, the rule of Spike-driven Transformer V1."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lapis.config import LapisConfig
from lapis.nn.relations.gained import Gained
from lapis.nn.relations.straight_through import gate, on_and_off
from lapis.relations.sdsa import SdsaRule


class SpikeDriven(Gained):
    """y_ic = g_h q_ic [sum_j min(k_jc, v_jc) >= theta_c], with a learned threshold per channel.

    The sum counts the spikes that the rate trains of keys and values have in common. theta starts at the mean of the
    sums in the first data, so that about half of the channels are open. A signed channel is an ON and an OFF one.
    """

    on_codes = True
    values_on_codes = True
    rule = SdsaRule

    def __init__(self, config: LapisConfig) -> None:
        super().__init__(config)
        trains = config.head_width * (2 if self.signed else 1)
        self.log_threshold = nn.Parameter(torch.zeros(config.heads, 1, trains))

    def coincidences(self, k: Tensor, v: Tensor) -> Tensor:
        """sum_j min(k_jc, v_jc): (B, H, N, C) twice -> (B, H, 1, C), with ON and OFF channels where k is signed."""
        keys, values = on_and_off(k, self.signed), on_and_off(v, self.signed)
        # Without OFF keys only the ON neurons of values have a partner.
        return torch.minimum(keys, values.clamp_min(0)).sum(dim=-2, keepdim=True)

    def gates(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return gate(self.coincidences(k, v), self.log_threshold.exp())

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        opened = on_and_off(q, self.signed) * self.gates(q, k, v)
        if self.signed:
            on, off = opened.chunk(2, dim=-1)
            opened = on - off
        return self.gain * opened

    @torch.no_grad()
    def calibrate(self, q: Tensor, k: Tensor, v: Tensor) -> None:
        self.log_threshold.copy_(self.coincidences(k, v).mean(dim=0).clamp_min(1).log())
