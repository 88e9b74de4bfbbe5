"""Spiking self-attention, the rule of Spikformer, Spikingformer and Max-Former."""

from __future__ import annotations

from torch import Tensor

from lapis.nn.relations.gained import GainedPairs
from lapis.ops.l1_distance.torch_native import l1_distance
from lapis.relations.ssa import SsaRule


class SpikingSelfAttention(GainedPairs):
    """W_ij = g_h sum_c min(q_ic, k_jc) = g_h (|q_i| + |k_j| - D_ij) / 2, D the l1 distance, |q| the sum of magnitudes.

    The minimum of two codes is the number of steps in which both of their rate trains spike: Spikformer's q k^T, summed
    over steps. Signed codes count as ON and OFF channels.
    """

    on_codes = True
    rule = SsaRule

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return (magnitudes(q, k) - l1_distance(q, k)) / 2


def magnitudes(q: Tensor, k: Tensor) -> Tensor:
    """|q_i| + |k_j| (B, H, N, N)."""
    return q.abs().sum(dim=-1).unsqueeze(-1) + k.abs().sum(dim=-1).unsqueeze(-2)
