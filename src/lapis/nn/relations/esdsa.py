"""The linear attention of Spike-driven Transformer V2 and V3."""

from __future__ import annotations

from torch import Tensor

from lapis.nn.relations.gained import GainedPairs
from lapis.relations.esdsa import EsdsaRule


class LinearProduct(GainedPairs):
    """y_i = g_h q_i (sum_j k_j^T v_j) on codes, in that order: the weights W_ij = g_h q_i . k_j are never stored."""

    on_codes = True
    rule = EsdsaRule

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.transpose(-1, -2)

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.gain * (q @ (k.transpose(-1, -2) @ v))
