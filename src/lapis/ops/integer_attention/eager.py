"""Attention in integers, in torch: integers travel as floats that hold them exactly."""

from __future__ import annotations

import torch
from torch import Tensor

from lapis.ops.arrays import check_values
from lapis.ops.distance.eager import dot_distance
from lapis.ops.distance.torch_native import l1_distance
from lapis.ops.integer_attention.reference import AffinityTables
from lapis.relations import Comparison


def integer_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tables: AffinityTables,
    delay: Tensor | None = None,
    compared_by: Comparison = "l1",
) -> tuple[Tensor, Tensor]:
    """The integers of the reference: q, k, v (..., H, N, C) integer-valued floats  ->  acc and Z in float64.

    The tables are tensors on the same device: table float64 (H, R, S), row_exponent int64 (H, S).
    """
    check_values(k.shape, v.shape)
    heads, rows, size = tables.table.shape
    distance = dot_distance(q, k).long().clamp_max(size - 1) if compared_by == "dot" else l1_distance(q, k).long()
    if delay is not None:
        distance = distance + delay
    head = torch.arange(heads, device=distance.device)[:, None, None]
    row = tables.row_exponent[head, distance.amin(dim=-1, keepdim=True)]
    affinity = tables.table.flatten()[(head * rows + row) * size + distance]
    return affinity @ v.double(), affinity.sum(dim=-1)
